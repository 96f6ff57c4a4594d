"""Text of several sources, mixed by weight."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, PositiveFloat, model_validator

from ... import component
from ...component import Room, refuse_all
from ...errors import ConfigError, nearest
from ...registry import register
from ..corpus import Corpus
from ..digest import digest
from ..samples import Shape
from ..samples.mixed import BLOCK, Mixed, shares
from ..templated import with_chat
from . import Source, TaskSource


@register("data", "mixture")
class Mixture(Source):
    """Rows of text sources in proportion to their weights, each source in its own order and layout, over and over.

    Each holds out its own share for validation, which reads every held-out row of every source once and tells the loss
    of each apart. A tokenizer that trains sees the training texts of all of them, each once.
    """

    kinds = ("text",)

    class Config(Source.Config):
        """`sources`: text sources by a name of your own; `weights`: the share of the training rows that each is, by the
        same names and in proportion; a source without one weighs 1."""

        sources: Annotated[dict[str, Annotated[component.Config, Room("data")]], Field(min_length=1)]
        weights: dict[str, PositiveFloat] = Field(default_factory=dict)

        @property
        def parts(self) -> tuple[str, ...]:
            return tuple(self.sources)

        @property
        def weighed(self) -> list[float]:
            """The weight of each source, in their order."""
            return [self.weights.get(name, 1.0) for name in self.sources]

        @model_validator(mode="after")
        def _can_be_mixed(self) -> Self:
            names = ", ".join(self.sources)
            faults: list[tuple[str, object, str, str]] = []
            for name, source in self.sources.items():
                drawn = issubclass(source.component, TaskSource)
                if drawn or source.kind != "text":  # type: ignore[attr-defined]
                    found = f"{source.name}, which gives {'rows that are drawn' if drawn else source.kind}"  # type: ignore[attr-defined]
                    faults.append((f"sources.{name}", found, "a source of texts, such as text or python_docs", ""))
            for name in self.weights:
                if name not in self.sources:
                    fix = f"data.weights.{nearest(name, self.sources) or '<one of them>'}=..."
                    faults.append((f"weights.{name}", self.weights[name], f"the sources are {names}", fix))
            for name, share in zip(self.sources, shares(self.weighed), strict=True):
                if not share:
                    rule = f"each source has at least one of {BLOCK} rows"
                    fix = f"data.weights.{name}={sum(self.weighed) / BLOCK:.3g} or more"
                    faults.append((f"weights.{name}", self.weights.get(name, 1.0), rule, fix))
            refuse_all(faults)
            return self

    config: Config

    def corpus(self, tokenizer: Any, shape: Shape, cache: Path) -> Corpus:
        """Raises ConfigError as its sources do, at their paths."""
        heard: list[str] = []
        self._each(lambda source: heard.extend(_training_texts(source, tokenizer, shape, cache)))
        made = tokenizer.component.prepare(tokenizer, heard, cache)
        corpora = self._each(lambda source: source.corpus(_Ready(tokenizer, made), shape, cache))
        train, val = (
            Mixed([getattr(corpus, side) for corpus in corpora], self.config.weighed, self.config.parts)
            for side in ("train", "val")
        )
        told = [f"{name} {weight}" for name, weight in zip(self.config.sources, self.config.weighed, strict=True)]
        mark = digest([*told, *(corpus.fingerprint for corpus in corpora)])
        first = tuple(text for corpus in corpora for text in corpus.opening)
        spoken = {chat.template: chat for corpus in corpora if (chat := corpus.tokenizer.chat) is not None}
        made = with_chat(made, *spoken.values()) if len(spoken) == 1 else made
        return Corpus(made, train, val, mark, val_bytes_per_token=_bytes_per_token(corpora), opening=first)

    def _each(self, ask: Callable[[Source], Any]) -> list[Any]:
        """What each source answers; its problems are told of its own place in the config."""
        answers = []
        for name, config in self.config.sources.items():
            try:
                answers.append(ask(config.component(config)))
            except ConfigError as error:
                raise ConfigError([_placed(problem, f"data.sources.{name}") for problem in error.problems]) from None
        return answers


def _placed(problem: Any, place: str) -> Any:
    def moved(text: str) -> str:
        return re.sub(r"\bdata\.(?=\w)", f"{place}.", text)

    path = place if problem.path == "data" else moved(problem.path)
    return replace(problem, path=path, rule=moved(problem.rule), fix=moved(problem.fix))


def _bytes_per_token(corpora: Sequence[Corpus]) -> float | None:
    """Of the held-out text of all together."""
    each = [size for corpus in corpora if (size := corpus.val_bytes_per_token) is not None]
    if len(each) < len(corpora):
        return None
    counts = [len(corpus.val.first(1 << 62)) for corpus in corpora]
    return math.fsum(size * count for size, count in zip(each, counts, strict=True)) / sum(counts)


class _Heard(Exception):
    """The texts that a source has a tokenizer train on."""


@dataclass(frozen=True)
class _Asked:
    """A tokenizer's config that only wants to hear what it would train on."""

    config: Any

    @property
    def component(self) -> Self:
        return self

    def prepare(self, config: Any, texts: Sequence[str], cache: Path) -> Any:
        raise _Heard(texts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.config, name)


@dataclass(frozen=True)
class _Ready(_Asked):
    """A tokenizer's config whose tokenizer is there."""

    tokenizer: Any

    def prepare(self, config: Any, texts: Sequence[str], cache: Path) -> Any:
        return self.tokenizer


def _training_texts(source: Source, tokenizer: Any, shape: Shape, cache: Path) -> Sequence[str]:
    try:
        source.corpus(_Asked(tokenizer), shape, cache)
    except _Heard as heard:
        return heard.args[0]
    return ()
