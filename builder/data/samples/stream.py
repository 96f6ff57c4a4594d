"""Windows over the row of all documents, wherever one of them ends."""

from __future__ import annotations

import torch
from torch import Tensor

from ..order import batch_starts
from ..ragged import Ragged
from ..tokenizer import Tokenizer
from . import MASKS, Batch, Samples, Shape


class Stream(Samples):
    """Windows of T + ahead tokens every T tokens of `row` (N,), so that no token is a target twice; a pick is a start.

    In training each epoch has a phase and an order of its own (data/order). In validation the last window is padded,
    and each token is a target once: but the very first, which nothing stands before, where `ahead` is not 0.
    `row` is anything that gives integers for an index (B, W) as a tensor does.
    """

    whole_rows = True  # a training window is never padded

    def __init__(self, row: Tensor | Ragged, shape: Shape, tokenizer: Tokenizer):
        self.row = row.row if isinstance(row, Ragged) else row
        self.shape, self.tokenizer = shape, tokenizer
        self.pad = tokenizer.pad

    def picks(self, seed: int, step: int, batch: int) -> Tensor:
        # Where less is asked for than the next token, the row is as good as one token longer.
        return batch_starts(len(self.row) + 1 - self.shape.ahead, self.shape.length, batch, seed, step)

    def every(self) -> Tensor:
        # A window that starts on the last token has none to predict.
        return torch.arange(0, len(self.row) - min(self.shape.ahead, 1), self.shape.length)

    def rows(self, picks: Tensor, mine: slice = slice(None)) -> Batch:
        index = picks[mine, None] + torch.arange(self.shape.width)  # (B, W)
        if int(picks.max()) + self.shape.width <= len(self.row):
            return {"tokens": self.row[index].long()}
        real = index < len(self.row)  # (B, W)
        tokens = self.row[index.clamp(max=len(self.row) - 1)].long()  # (B, W)
        return {"tokens": tokens.masked_fill(~real, self.pad), MASKS["tokens"]: real}

    def at(self, length: int) -> Stream:
        return Stream(self.row, Shape(length, self.shape.ahead), self.tokenizer)

    @property
    def largest_id(self) -> int:
        return int(self.row.max())

    def first(self, count: int) -> Tensor:
        return self.row[:count].long()
