"""What a run reads, made ready: rows to train on, rows to validate on, and what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import registry
from ..errors import ConfigError, Problem
from ..reads import reading
from .samples import Samples, Shape
from .tokenizer import Tokenizer, Unspeakable

if TYPE_CHECKING:
    from ..spec import RunSpec


@dataclass(frozen=True, eq=False)
class Corpus:
    """The data of a run, tokenized.

    train, val           no text or record stands in both
    fingerprint          equal ones: equal text, split and tokenizer
    kind                 `text`, `pairs`, `labelled` or `contrastive`: the keys of a batch (data/samples)
    val_bytes_per_token  UTF-8 bytes of the validation targets per target (an `eos` is a token of 0 bytes), so that
                         nats per target / ln 2 / val_bytes_per_token = bits per byte; None where what is asked for is
                         no text, or not all of it
    labels               the names of the labels, in the order of their numbers
    opening              how the first training texts begin, as they were read; () where there are only tokens
    read                 the paths of the keys of `data` and `tokenizer` that were read to make it
    """

    tokenizer: Tokenizer
    train: Samples
    val: Samples
    fingerprint: str
    kind: str = "text"
    val_bytes_per_token: float | None = None
    labels: tuple[str, ...] = ()
    read: frozenset[str] = frozenset()
    opening: tuple[str, ...] = ()

    @property
    def largest_id(self) -> int:
        """The largest id in either split."""
        return max(self.train.largest_id, self.val.largest_id)


def opening(texts: Sequence[str]) -> tuple[str, ...]:
    """How the first of these texts begin: at most eight, a thousand characters of each."""
    return tuple(text[:1000] for text in texts[:8])


def prepare(spec: RunSpec, *, cache: Path) -> Corpus:
    """Reads, splits and tokenizes as `data` and `tokenizer` say, in rows as `objective` asks for them.

    A tokenizer that trains sees the training text only. Raises ConfigError when the objective can't read such data, or
    where a split is too small.
    """
    data: Any = spec.data
    objective: Any = spec.objective.component
    if data.kind not in objective.reads:
        raise ConfigError([_mismatch(data, spec.objective)])
    shape = Shape(spec.model.train_length, objective.ahead)
    with reading(("data", data), ("tokenizer", spec.tokenizer)) as read:
        try:
            corpus = data.component(data).corpus(spec.tokenizer, shape, cache)
        except Unspeakable as error:
            found = f"{spec.tokenizer.name}, with data {data.name}"
            raise ConfigError([Problem("tokenizer", found, str(error), "tokenizer=bytes")]) from None
    return replace(corpus, read=frozenset(read))


def _mismatch(data: Any, objective: Any) -> Problem:
    """What to write instead is read off the registry."""
    reads = objective.component.reads
    others = [name for name in registry.names("objective") if data.kind in registry.find("objective", name).reads]
    sources = {name: registry.find("data", name) for name in registry.names("data")}
    usual = {name: found.Config.model_fields.get("form") for name, found in sources.items()}
    usual = {name: sources[name].kinds[0] if form is None else form.default for name, form in usual.items()}
    fixes = [f"objective={' or '.join(others) or '<one of your own>'}"]
    fixes += _chosen("data=", [name for name in sources if usual[name] in reads])
    for kind in reads:  # that a source gives when it is asked for it
        asked = [name for name, found in sources.items() if kind in found.kinds and usual[name] not in reads]
        fixes += _chosen(f"data.form={kind} data=", asked)
    found = f"{objective.name}, which reads {' or '.join(reads)}, and data {data.name} gives {data.kind}"
    return Problem("objective", found, "an objective reads the kind of data there is", ", or ".join(fixes))


def _chosen(key: str, names: list[str]) -> list[str]:
    return [f"{key}{' or '.join(names)}"] if names else []
