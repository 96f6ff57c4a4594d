"""What a run reads: rows by number, in an order that seed and step alone decide, whatever their layout."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

Batch = dict[str, Tensor]

MASKS = {"tokens": "attention_mask", "source": "source_mask", "other": "other_mask"}
"""Under which key of a batch it stands what is real in another of its keys; where it is absent, all is."""


@dataclass(frozen=True)
class Shape:
    """What a row holds at most: `length` tokens that a model reads, and `ahead` more that it is asked for."""

    length: int
    ahead: int = 1

    @property
    def width(self) -> int:
        """The tokens of a whole row."""
        return self.length + self.ahead


class Samples(ABC):
    """The rows of one side of a corpus. A *pick* is the number of a row; what it counts is the layout's own affair.

    A batch has these keys, of B rows, int64 tokens padded on the right with `pad`, bool masks that are true on what is
    real and absent where all is:

        text         tokens (B, T + ahead), attention_mask; segments, the number of each token's document from 1, 0 on
                     padding, in rows of several; counted (B, T + ahead), where not every token may be a target
        pairs        source (B, S), source_mask, tokens (B, U + 1) = [start, y_1 .. y_U-1, eos, ..], attention_mask
        labelled     tokens (B, T), attention_mask, labels (B,) int64
        tagged       tokens (B, T), attention_mask, labels (B, T) int64, -1 where a token has none
        contrastive  tokens (B, T), attention_mask, other (B, T'), other_mask

    In validation `counted` may also say that rows which only fill a batch up are no targets, (B,) for labelled and
    contrastive rows.
    """

    pad: int
    parts: Sequence[str] = ()
    """The names of the sources that rows are of, where a validation tells them apart."""

    @abstractmethod
    def picks(self, seed: int, step: int, batch: int) -> Tensor:
        """The rows that training reads at a step, the same on every rank: (B,) int64."""

    @abstractmethod
    def every(self) -> Tensor:
        """Each row once, in the order of validation: (N,) int64."""

    def part_of(self, picks: Tensor) -> Tensor:
        """Which of `parts` each of these rows is of: (B,) int64."""
        return torch.zeros_like(picks)

    @abstractmethod
    def rows(self, picks: Tensor, mine: slice = slice(None)) -> Batch:
        """The part `mine` of the batch of these rows, padded as the whole batch is."""

    @abstractmethod
    def at(self, length: int) -> Self:
        """The same in rows of `length` tokens to read."""

    @property
    @abstractmethod
    def largest_id(self) -> int:
        """The largest id there is."""

    def targets(self, batch: Batch) -> Tensor:
        """What the model is asked for: `counted`, where there is one, has its shape."""
        return batch["tokens"]

    def first(self, count: int) -> Tensor:
        """The first real tokens, one after another: (N,) int64, at most `count`."""
        kept, found = [], 0
        for picks in self.every().split(64):
            batch = self.rows(picks)
            tokens = batch["tokens"]
            kept.append(tokens[batch[MASKS["tokens"]]] if MASKS["tokens"] in batch else tokens.flatten())
            found += len(kept[-1])
            if found >= count:
                break
        return torch.cat(kept)[:count]
