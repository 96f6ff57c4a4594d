"""A sequence cut into chunks, and what decay leaves inside of a chunk, ahead of it and behind it.

Inside a chunk every token meets every other in a matrix product; from chunk to chunk only the state goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 64
"""Tokens in a chunk, at most; one of a short text has half of it, so that what goes on from chunk to chunk is no rarity
of long texts, which nobody tried."""


def chunks(length: int) -> tuple[int, int]:
    """(how many chunks a sequence of that length makes, tokens in each of them)."""
    size = max(1, min(-(-length // 2), CHUNK))
    return -(-length // size), size


def cut(x: Tensor) -> Tensor:
    """x (B, T, H, ...) in chunks, filled up with zeros: (B, H, n, L, ...)."""
    count, size = chunks(x.shape[1])
    x = F.pad(x, (0, 0) * (x.dim() - 2) + (0, count * size - x.shape[1]))
    return x.unflatten(1, (count, size)).movedim(3, 1)  # (B, H, n, L, ...)


def joined(y: Tensor, length: int) -> Tensor:
    """y (B, H, n, L, V) as a sequence again: (B, T, H, V)."""
    return y.movedim(1, 3).flatten(1, 2)[:, :length]


@dataclass(frozen=True)
class Left:
    """What is left of things, as factors between 0 and 1; 0 where they are of another document.

    inside      (B, H, n, L, L)   at token i, of what token j <= i of the chunk wrote
    entering    (B, H, n, L, 1)   at token i, of the state ahead of the chunk
    leaving     (B, H, n, L, 1)   behind the chunk, of what token j wrote
    whole       (B, H, n, 1, 1)   behind the chunk, of the state ahead of it
    """

    inside: Tensor
    entering: Tensor
    leaving: Tensor
    whole: Tensor


def left(log: Tensor, starts: Tensor | None) -> Left:
    """By log decays (B, H, n, L), none above 0, and by where documents start, (B, T) bool or None: all are one."""
    sums, token = log.cumsum(-1), torch.arange(log.shape[-1], device=log.device)
    between = sums[..., :, None] - sums[..., None, :]  # (B, H, n, L, L)
    behind = sums[..., -1:] - sums
    hidden = token[:, None] < token
    if starts is None:
        return _exp(between.masked_fill(hidden, -torch.inf), sums, behind, sums[..., -1:])
    first = cut(starts[..., None])  # (B, 1, n, L)
    number = first.flatten(2).cumsum(2).view_as(first)
    before, last = number[..., :1] - first[..., :1].long(), number[..., -1:]
    return _exp(
        between.masked_fill(hidden | (number[..., :, None] != number[..., None, :]), -torch.inf),
        sums.masked_fill(number != before, -torch.inf),
        behind.masked_fill(number != last, -torch.inf),
        sums[..., -1:].masked_fill(last != before, -torch.inf),
    )


def _exp(inside: Tensor, entering: Tensor, leaving: Tensor, whole: Tensor) -> Left:
    return Left(inside.exp(), entering.exp()[..., None], leaving.exp()[..., None], whole.exp()[..., None])
