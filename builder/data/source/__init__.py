"""The room of data sources: each turns its config into the rows that a run reads, always the same ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, PositiveInt

from ... import component
from ...errors import Problem
from ..corpus import Corpus
from ..draw import Draw
from ..records import Overlong, Record, record_corpus
from ..samples import Batch, Shape
from ..split import Split
from ..tasks import Ids, task_corpus
from ..texts import Packing, text_corpus


class Source(component.Component, ABC):
    """A source of data, made as `cls(config)`; it reads nothing before `corpus` is called.

    `kinds`: what its batches may hold, `text`, `pairs`, `labelled` or `contrastive` (data/samples).
    """

    kinds: ClassVar[tuple[str, ...]]

    class Config(component.Config):
        """A source's own knobs."""

        @property
        def kind(self) -> str:
            """What the batches hold."""
            return self.component.kinds[0]

        @property
        def parts(self) -> tuple[str, ...]:
            """The names of the sources that a validation tells apart; () where there is but this one."""
            return ()

    def __init__(self, config: Any):
        self.config = config

    @abstractmethod
    def corpus(self, tokenizer: Any, shape: Shape, cache: Path) -> Corpus:
        """All of it in rows of `shape`, with the tokenizer that the config `tokenizer` makes, kept in `cache`.

        Raises ArchlabError, with the config path, when there is nothing to read or too little.
        """


class HoldsOut(Source.Config):
    """The share that is held out for validation."""

    val_fraction: float = Field(default=0.1, gt=0, lt=1)


class TextSource(Source):
    """A source of text: a list of documents."""

    kinds = ("text",)

    class Config(HoldsOut):
        """How text is held out, a share of its characters, and how it is laid out in rows.

        split     `tail` cuts the last characters off the whole text; `documents` takes whole documents, by their hash
        packing   `stream`: windows over the row of all documents, wherever one ends; `documents`: whole documents, as
                  many as a row takes, none of which sees another; `padded`: one document a row, rows of similar length
                  together. In the last two a document longer than a row is cut into pieces, each a document of its own
        """

        split: Split = "tail"
        packing: Packing = "stream"

    @abstractmethod
    def documents(self) -> list[str]:
        """The texts, in a stable order. Raises ArchlabError, with the config path, when there are none to read."""

    def corpus(self, tokenizer: Any, shape: Shape, cache: Path) -> Corpus:
        return text_corpus(self.documents(), self.config, tokenizer, shape, cache)


class RecordSource(Source):
    """A source of records of the one kind in `kinds`, two strings each: a source and its target (`pairs`), a text and
    its label (`labelled`), or two texts that belong together (`contrastive`)."""

    class Config(HoldsOut):
        """What becomes of texts longer than model.train_length.

        overlong   `refuse`; `truncate`: what is over is cut off, and the text ends there; `drop`: leave the record out
        """

        overlong: Overlong = "refuse"

    @abstractmethod
    def records(self) -> list[Record]:
        """The records, in a stable order. Raises ArchlabError, with the config path, when there are none to read."""

    def corpus(self, tokenizer: Any, shape: Shape, cache: Path) -> Corpus:
        return record_corpus(self.records(), self.config, tokenizer, shape, cache)


class TaskSource(Source):
    """A task whose answers are known: rows of symbols, drawn as they are read and never twice the same way."""

    kinds = ("text",)

    class Config(HoldsOut):
        """`n_symbols` are the numbers 0 to n - 1, each its own id; validation reads `val_rows` rows.

        `val_fraction` of all the rows that there can be, by their hash, are never trained on.
        """

        n_symbols: int = Field(ge=2)
        val_rows: PositiveInt = 512

    @abstractmethod
    def rows(self, draw: Draw, shape: Shape, ids: Ids) -> Batch:
        """A batch (data/samples) of the rows of `draw`, as wide as the widest that `shape` allows; `counted` is true on
        answers. A mask is there always or never."""

    def problems(self, shape: Shape) -> Iterable[Problem]:
        """Why rows of `shape` have no room for the task."""
        return ()

    def corpus(self, tokenizer: Any, shape: Shape, cache: Path) -> Corpus:
        return task_corpus(self, self.config, tokenizer, shape, cache)
