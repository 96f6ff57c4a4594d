"""What a run reads, made ready: rows to train on, rows to validate on, and what is known of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import registry
from ..errors import ConfigError, Problem
from .samples import Samples, Shape
from .tokenizer import Tokenizer

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
    """

    tokenizer: Tokenizer
    train: Samples
    val: Samples
    fingerprint: str
    kind: str = "text"
    val_bytes_per_token: float | None = None
    labels: tuple[str, ...] = ()

    @property
    def largest_id(self) -> int:
        """The largest id in either split."""
        return max(self.train.largest_id, self.val.largest_id)


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
    return data.component(data).corpus(spec.tokenizer, shape, cache)


def _mismatch(data: Any, objective: Any) -> Problem:
    """What to write instead is read off the registry."""
    reads = objective.component.reads
    others = _named("objective", lambda found: data.kind in found.reads)
    sources = _named("data", lambda found: set(found.kinds) & set(reads))
    found = f"{objective.name}, which reads {' or '.join(reads)}, and data {data.name} gives {data.kind}"
    return Problem("objective", found, "an objective reads the kind of data there is", f"{others}, or {sources}")


def _named(room: str, fits: Any) -> str:
    names: Iterable[str] = (name for name in registry.names(room) if fits(registry.find(room, name)))
    return f"{room}={' or '.join(names) or '<one of your own>'}"
