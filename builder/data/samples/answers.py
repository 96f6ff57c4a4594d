"""Texts of which only some tokens may be targets."""

from __future__ import annotations

from torch import Tensor

from . import MASKS, Batch, Samples


class Answers(Samples):
    """The rows of `texts`, and as `counted` the places where `marks`, rows of the same layout, hold ones."""

    def __init__(self, texts: Samples, marks: Samples):
        self.texts, self.marks, self.pad = texts, marks, texts.pad

    def picks(self, seed: int, step: int, batch: int) -> Tensor:
        return self.texts.picks(seed, step, batch)

    def every(self) -> Tensor:
        return self.texts.every()

    def rows(self, picks: Tensor, mine: slice = slice(None)) -> Batch:
        batch = self.texts.rows(picks, mine)
        counted = self.marks.rows(picks, mine)["tokens"] == 1  # (B, W)
        real = batch.get(MASKS["tokens"])
        return batch | {"counted": counted if real is None else counted & real}  # the id that pads may be 1

    def at(self, length: int) -> Answers:
        return Answers(self.texts.at(length), self.marks.at(length))

    @property
    def largest_id(self) -> int:
        return self.texts.largest_id
