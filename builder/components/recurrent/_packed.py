"""Rows that differ in length, and documents of packed rows, laid out as torch's kernels take packed sequences."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from builder.model.compact import Compact


@dataclass(frozen=True)
class Packed:
    """The real tokens of B rows by step: the first of every sequence, longest first, then the second of every one, ...

        a a a        tokens  a1 b1 c1 a2 c2 a3
        b c c        sizes   3 2 1

    tokens      (N,) int64 into the B T tokens
    sizes       (L,) int64 on the CPU, how many sequences each step has
    rows        (n,) int64, from which row each sequence is, longest first; those without a token aren't there
    """

    tokens: Tensor
    sizes: Tensor
    rows: Tensor


def packed(rows: Compact, batch: int, length: int) -> Packed:
    """The sequences of `batch` rows of `length` tokens, as moved together."""
    told = rows.starts if rows.starts is not None else rows.real
    place = torch.arange(batch * length, device=None if told is None else told.device)
    starts = place % length == 0 if rows.starts is None else rows.starts.expand(batch, length).flatten()
    number = starts.cumsum(0) - 1  # (B T,) of its sequence
    step = place - place[starts][number]
    if rows.real is not None:
        real = rows.real.expand(batch, length).flatten()
        place, number, step = place[real], number[real], step[real]
    lengths = number.bincount(minlength=int(starts.sum()))
    longest = lengths.argsort(descending=True, stable=True)
    order = (step * len(longest) + longest.argsort()[number]).argsort()
    first = starts.nonzero()[:, 0][longest[: int((lengths > 0).sum())]]
    return Packed(place[order], step.bincount().cpu(), first // length)
