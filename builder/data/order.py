"""The order of the training samples, a pure function of seed and step: a run resumes at any step with nothing saved."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import torch


def per_epoch(n_tokens: int, length: int) -> int:
    """The windows of an epoch: as many as fit at every phase of the grid, and at least one.

    Raises ValueError when not even one window of `length` + 1 tokens fits.
    """
    if n_tokens < length + 1:
        raise ValueError(f"{n_tokens} tokens hold no window of {length} + 1")
    return max(1, (n_tokens - length) // length)


@lru_cache(maxsize=2)  # a batch may straddle two epochs
def windows(n_tokens: int, length: int, seed: int, epoch: int) -> torch.Tensor:
    """The starts of one epoch's windows in the order they are served: (W,) int64; treat it as read-only.

    Windows of `length` + 1 tokens stand every `length` tokens, so that no token is a target twice. The grid begins at a
    phase drawn anew for each epoch: the model meets other windows, and what one grid leaves out another takes in.
    """
    count = per_epoch(n_tokens, length)
    draw = torch.Generator().manual_seed(_seed(seed, epoch))
    phase = torch.randint(n_tokens - count * length, (), generator=draw)  # every place where the whole grid fits
    return phase + length * torch.randperm(count, generator=draw)  # (W,)


def batch_starts(n_tokens: int, length: int, batch: int, seed: int, step: int) -> torch.Tensor:
    """The starts of the windows of one step: (B,) int64. Sample k = step * batch + row is in epoch k // per_epoch."""
    count = per_epoch(n_tokens, length)
    sample = torch.arange(step * batch, (step + 1) * batch)  # (B,)
    epoch, place = sample // count, sample % count  # (B,)
    epochs = range(int(epoch[0]), int(epoch[-1]) + 1)
    return torch.cat([windows(n_tokens, length, seed, e)[place[epoch == e]] for e in epochs])  # (B,)


def _seed(seed: int, epoch: int) -> int:
    # Python's hash() of text differs between processes; seed + epoch would make epoch 1 of seed 0 epoch 0 of seed 1.
    return int.from_bytes(hashlib.sha256(f"{seed}/{epoch}".encode()).digest()[:7], "little")
