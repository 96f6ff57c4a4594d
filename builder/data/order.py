"""The order of the training samples, a pure function of seed and step: a run resumes at any step with nothing saved."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache

import torch

_POOL = 50
"""Batches among which rows of similar length are sought: the more, the less padding and the less chance."""

_KEPT = 32
"""Epochs whose order is kept: a batch may straddle two, of each of several sources."""


def per_epoch(n_tokens: int, length: int) -> int:
    """The windows of an epoch: as many as fit at every phase of the grid, and at least one.

    Raises ValueError when not even one window of `length` + 1 tokens fits.
    """
    if n_tokens < length + 1:
        raise ValueError(f"{n_tokens} tokens hold no window of {length} + 1")
    return max(1, (n_tokens - length) // length)


@lru_cache(maxsize=_KEPT)
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
    """The starts of the windows of one step: (B,) int64."""
    return of_step(step, batch, per_epoch(n_tokens, length), lambda epoch: windows(n_tokens, length, seed, epoch))


def of_step(step: int, batch: int, count: int, epochs: Callable[[int], torch.Tensor]) -> torch.Tensor:
    """What is read at one step of epochs of `count` samples each, (B,): sample k = step * batch + row is in epoch
    k // count. `epochs` gives the samples of one of them in the order they are served, (count,)."""
    sample = torch.arange(step * batch, (step + 1) * batch)  # (B,)
    epoch, place = sample // count, sample % count  # (B,)
    met = range(int(epoch[0]), int(epoch[-1]) + 1)
    return torch.cat([epochs(number)[place[epoch == number]] for number in met])  # (B,)


@lru_cache(maxsize=_KEPT)
def shuffled(count: int, seed: int, epoch: int) -> torch.Tensor:
    """The order of `count` rows in an epoch, drawn anew for each: (count,) int64; treat it as read-only."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(_seed(seed, epoch)))


@lru_cache(maxsize=_KEPT)  # a tensor is known by which it is, not by what it holds
def bucketed(lengths: torch.Tensor, batch: int, seed: int, epoch: int) -> torch.Tensor:
    """The order of rows of `lengths` (N,) in an epoch, (N,) int64: batches hold rows of similar length, and stand in
    no order of length; treat it as read-only.

    Shuffled rows are sorted by length within pools of _POOL batches, cut into batches, and these are shuffled. What
    fills up a batch that the epoch before has begun comes first, and what is left over for the next last.
    """
    count = len(lengths)
    draw = torch.Generator().manual_seed(_seed(seed, epoch))
    order = torch.randperm(count, generator=draw)  # (N,)
    begun = min(-epoch * count % batch, count)
    whole = (count - begun) // batch * batch
    pools = [pool[lengths[pool].argsort(stable=True)] for pool in order[begun : begun + whole].split(_POOL * batch)]
    batches = torch.cat([order[:0], *pools]).view(-1, batch)  # (batches, B)
    batches = batches[torch.randperm(len(batches), generator=draw)]
    return torch.cat([order[:begun], batches.flatten(), order[begun + whole :]])  # (N,)


def _seed(seed: int, epoch: int) -> int:
    # Python's hash() of text differs between processes; seed + epoch would make epoch 1 of seed 0 epoch 0 of seed 1.
    return int.from_bytes(hashlib.sha256(f"{seed}/{epoch}".encode()).digest()[:7], "little")
