"""Texts of different lengths in one row of tokens, and the rectangle of some of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


def numbered(counts: Tensor) -> tuple[Tensor, Tensor]:
    """For `counts` (N,) things of N owners one after another: the owner of each, and its number there; both (sum,)."""
    owner = torch.arange(len(counts)).repeat_interleave(counts)
    return owner, torch.arange(len(owner)) - (counts.cumsum(0) - counts)[owner]


@dataclass(frozen=True, eq=False)
class Ragged:
    """N pieces of the tokens `row`: piece i is the `lengths[i]` tokens from `starts[i]` on; both (N,) int64.

    `row` is anything that gives integers for an index as a tensor does.
    """

    row: Tensor
    starts: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, row: Tensor | Ragged, eos: int) -> Ragged:
        """The texts of a row in which each ends in `eos` and holds no other; pieces are texts as they are."""
        if isinstance(row, Ragged):
            return row
        ends = (row == eos).nonzero().flatten() + 1  # (N,)
        starts = torch.cat([ends.new_zeros(1), ends])[:-1]  # (N,)
        return cls(row, starts, ends - starts)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, which: Tensor) -> Ragged:
        """Some of the pieces."""
        return replace(self, starts=self.starts[which], lengths=self.lengths[which])

    def cut(self, length: int, ahead: int) -> Ragged:
        """Every text in pieces of `length` + `ahead` tokens, one each `length` tokens and the last as long as what is
        left: each token of a text but its first `ahead` stands once behind the first `ahead` of a piece."""
        counts = ((self.lengths - ahead + length - 1) // length).clamp_min(0)  # (N,)
        text, number = numbered(counts)  # (P,)
        left = self.lengths[text] - number * length  # (P,)
        return replace(self, starts=self.starts[text] + number * length, lengths=left.clamp_max(length + ahead))

    def clipped(self, length: int, eos: int) -> Ragged:
        """Every piece cut off after `length` tokens, the last of which becomes `eos`; `row` must be a tensor."""
        row, long = self.row.clone(), self.lengths > length
        row[self.starts[long] + length - 1] = eos
        return Ragged(row, self.starts, self.lengths.clamp_max(length))

    def padded(self, which: Tensor, width: int, pad: int) -> tuple[Tensor, Tensor]:
        """The pieces `which` (B,) as (tokens (B, W) int64, what of them is real (B, W) bool)."""
        places = torch.arange(width)
        real = places < self.lengths[which, None]  # (B, W)
        index = (self.starts[which, None] + places).masked_fill(~real, 0)  # (B, W)
        return self.row[index].long().masked_fill(~real, pad), real

    def joined(self, which: Tensor) -> Tensor:
        """The pieces `which` (P,) one after another: (sum of their lengths,) int64."""
        piece, place = numbered(self.lengths[which])
        return self.row[self.starts[which][piece] + place].long()
