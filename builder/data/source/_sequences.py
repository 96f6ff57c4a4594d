"""Tasks that answer a sequence with another: both in one row, or one as the source of the other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Literal

import torch
from pydantic import PositiveInt
from torch import Tensor

from ...errors import Problem
from ..draw import Draw
from ..samples import MASKS, Batch, Shape
from ..tasks import Ids, joined
from . import TaskSource


class Sequences(TaskSource):
    """A question of n symbols, n from `min_length` to `max_length` alike, and its answer of at most n:

    text    x_1 .. x_n > y_1 .. y_m eos      the answer and its end are counted
    pairs   source x_1 .. x_n eos, and tokens start y_1 .. y_m eos
    """

    kinds = ("text", "pairs")

    class Config(TaskSource.Config):
        """`form` as `text`, for a decoder, or as `pairs`; `max_length` null: as long as model.train_length allows."""

        form: Literal["text", "pairs"] = "text"
        min_length: PositiveInt = 1
        max_length: PositiveInt | None = None

        @property
        def kind(self) -> str:
            return self.form

        def longest(self, shape: Shape) -> int:
            """The longest question that a row of `shape` has room for, with its answer."""
            return {"text": (shape.width - 2) // 2, "pairs": shape.length - 1}[self.form]

    config: Config

    def question(self, draw: Draw, lengths: Tensor, most: int) -> Tensor:
        """Symbols of which the first `lengths` (B,) are asked: (B, most)."""
        return draw.below(self.config.n_symbols, most)

    @abstractmethod
    def answer(self, question: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """(symbols of which the first count (B, N), the counts (B,)) to a question (B, N) of these `lengths` (B,)."""

    def problems(self, shape: Shape) -> Iterable[Problem]:
        low, asked, room = self.config.min_length, self.config.max_length, self.config.longest(shape)
        rule = f"in {self.config.form}, model.train_length={shape.length} has room for a question of {max(room, 0)}"
        if low > room:
            yield Problem(
                "data.min_length", str(low), rule, f"data.min_length={max(room, 1)}, or a longer train_length"
            )
        if asked is not None and asked > room:
            yield Problem(
                "data.max_length", str(asked), rule, f"data.max_length={max(room, 1)} or a longer train_length"
            )
        if asked is not None and asked < low:
            rule = f"at least data.min_length={low}"
            yield Problem("data.max_length", str(asked), rule, f"data.max_length={low}")

    def rows(self, draw: Draw, shape: Shape, ids: Ids) -> Batch:
        low, most = self.config.min_length, self.config.max_length or self.config.longest(shape)
        lengths = low + draw.below(most - low + 1, 1)[:, 0]  # (B,)
        question = self.question(draw, lengths, most)
        answer, count = self.answer(question, lengths)
        one = torch.ones_like(lengths)

        def alone(id: int) -> tuple[Tensor, Tensor]:
            return torch.full((len(lengths), 1), id), one

        if self.config.kind == "text":
            parts = [(question, lengths), alone(ids.mark), (answer, count), alone(ids.eos)]
            tokens, part = joined(parts, 2 * most + 2, ids.pad)
            return {"tokens": tokens, MASKS["tokens"]: part >= 0, "counted": part >= 2}
        source, first = joined([(question, lengths), alone(ids.eos)], most + 1, ids.pad)
        tokens, second = joined([alone(ids.start), (answer, count), alone(ids.eos)], most + 2, ids.pad)
        return {"source": source, MASKS["source"]: first >= 0, "tokens": tokens, MASKS["tokens"]: second >= 0}
