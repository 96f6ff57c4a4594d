"""Passages of Python's own documentation, and which topic each is from, or which belong together."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from pydantic import Field, PositiveInt

from ...errors import ConfigError, Problem
from ...registry import register
from ..records import Record
from . import RecordSource
from .python_docs import topics


@register("data", "passages")
class Passages(RecordSource):
    """Each topic (`pydoc_data.topics`) cut into passages, one behind the other; no passage stands in two records.

    labelled     (passage, topic)
    contrastive  (passage, the next one of the same topic)

    White space is single spaces. A passage that stands in several topics, or twice in one, is left out: it doesn't tell
    whose it is.
    """

    kinds = ("labelled", "contrastive")

    class Config(RecordSource.Config):
        """`form`: labelled or contrastive; of the `topics` topics with the most passages (null: of all), cut
        where words end into passages of at most `length` characters, the last left out if it has less than half."""

        form: Literal["labelled", "contrastive"] = "labelled"
        topics: PositiveInt | None = Field(default=8, ge=2)
        length: int = Field(default=200, ge=16)

        @property
        def kind(self) -> str:
            return self.form

    config: Config

    def records(self) -> list[Record]:
        """The records, by topic and place. Raises ConfigError where Python lacks the texts, or has fewer topics."""
        plain = {name: " ".join(text.split()) for name, text in topics().items()}
        whole = "\n".join(plain.values())
        cut = {name: _passages(text, self.config.length) for name, text in plain.items()}
        alone = {name: [passage for passage in found if whole.count(passage) == 1] for name, found in cut.items()}
        named = sorted((name for name in alone if len(alone[name]) > 1), key=lambda name: (-len(alone[name]), name))
        if self.config.topics is not None and self.config.topics > len(named):
            found = f"{self.config.topics}, and {len(named)} topics have 2 passages of {self.config.length} characters"
            rule = "each topic has at least 2 passages"
            fix = f"data.topics={len(named)} or less, or a smaller data.length"
            raise ConfigError([Problem("data.topics", found, rule, fix)])
        chosen = sorted(named[: self.config.topics])
        return [record for name in chosen for record in _RECORDS[self.config.form](name, alone[name])]


def _passages(text: str, length: int) -> list[str]:
    """Words, joined by single spaces, in passages of at most `length` characters."""
    made: list[str] = []
    for word in re.findall(rf"\S{{1,{length}}}", text):
        if made and len(made[-1]) + 1 + len(word) <= length:
            made[-1] += " " + word
        else:
            made.append(word)
    return made[:-1] if made and len(made[-1]) < length / 2 else made


def _labelled(topic: str, passages: list[str]) -> Iterable[Record]:
    return ((passage, topic) for passage in passages)


def _contrastive(topic: str, passages: list[str]) -> Iterable[Record]:
    return zip(passages[::2], passages[1::2], strict=False)


_RECORDS = {"labelled": _labelled, "contrastive": _contrastive}
