"""Batches of a corpus: endless and resumable for training, every row once for validation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from ..errors import ConfigError, Problem
from .samples import MASKS, Batch, Samples

Collate = Callable[[Batch, list[int]], Batch]
"""What an objective makes of a rank's rows; it draws, for each row, from the number that comes with it."""


def as_it_is(batch: Batch, draws: list[int]) -> Batch:
    """The batch."""
    return batch


class TrainBatches(IterableDataset[Batch]):
    """Yields the batches of `samples` from `start_step` on, without end, as `collate` makes them.

    Each rank takes its rows of the same global batch, so that step s holds the same samples on any number of ranks.
    Raises ConfigError when the ranks can't share a batch evenly.
    """

    def __init__(
        self,
        samples: Samples,
        *,
        batch: int,
        seed: int,
        collate: Collate = as_it_is,
        start_step: int = 0,
        rank: int = 0,
        world: int = 1,
    ):
        _refuse_uneven(batch, world)
        self.samples, self.batch, self.seed, self.collate = samples, batch, seed, collate
        self.start_step, self.rank, self.world = start_step, rank, world

    def __iter__(self) -> Iterator[Batch]:
        step = self.start_step
        while True:
            yield self.at(step)
            step += 1

    def at(self, step: int) -> Batch:
        """The batch of one step."""
        picks = self.samples.picks(self.seed, step, self.batch)  # (B,)
        first = int.from_bytes(hashlib.sha256(f"{self.seed}/{step}/row".encode()).digest()[:7], "little")
        draws = [first + row for row in range(self.rank, self.batch, self.world)]
        return self.collate(self.samples.rows(picks, slice(self.rank, None, self.world)), draws)


class ValBatches(IterableDataset[Batch]):
    """Every row of `samples` once, in batches as `collate` makes them; a row is drawn for from its number alone.

    So that every rank takes part in every batch, the last one may be filled up with rows of one real token and nothing
    that counts.
    """

    def __init__(self, samples: Samples, *, batch: int, collate: Collate = as_it_is, rank: int = 0, world: int = 1):
        _refuse_uneven(batch, world)
        self.samples, self.batch, self.collate = samples, batch, collate
        self.rank, self.world = rank, world
        every = samples.every()
        self.count = len(every)
        self.picks = torch.cat([every, every[-1:].expand(-len(every) % world)])

    def __len__(self) -> int:
        return -(-len(self.picks) // self.batch)

    def __iter__(self) -> Iterator[Batch]:
        mine = slice(self.rank, None, self.world)
        numbers = torch.arange(len(self.picks)).split(self.batch)
        for number, picks in zip(numbers, self.picks.split(self.batch), strict=True):
            batch = self.samples.rows(picks, mine)
            if int(number[-1]) >= self.count:
                batch = _emptied(batch, number[mine] >= self.count, self.samples)
            yield self.collate(batch, number[mine].tolist())


def _emptied(batch: Batch, filler: Tensor, samples: Samples) -> Batch:
    """The batch with one real token in the rows where `filler` (B,) is true, and nothing that counts."""
    made = dict(batch)
    for name, mask in MASKS.items():
        if name in batch:
            kept = ~filler[:, None] | (torch.arange(batch[name].shape[1]) == 0)  # (B, W)
            made[name] = batch[name].masked_fill(~kept, samples.pad)
            made[mask] = batch[mask] & kept if mask in batch else kept
    targets = samples.targets(batch)
    counted = batch.get("counted", torch.ones_like(targets, dtype=torch.bool))
    return made | {"counted": counted & ~filler.view(-1, *[1] * (targets.dim() - 1))}


def train_loader(samples: Samples, **how: Any) -> DataLoader[Batch]:
    """Training batches as TrainBatches yields them, whose `batch` counts the rows of all ranks together."""
    data = TrainBatches(samples, **how)
    return DataLoader(data, batch_size=None, num_workers=0, pin_memory=torch.cuda.is_available())


def val_loader(
    samples: Samples, *, batch: int, collate: Collate = as_it_is, rank: int = 0, world: int = 1
) -> DataLoader[Batch]:
    """Validation batches as ValBatches yields them; `batch` counts the rows of all ranks together."""
    data = ValBatches(samples, batch=batch, collate=collate, rank=rank, world=world)
    return DataLoader(data, batch_size=None, num_workers=0, pin_memory=torch.cuda.is_available())


def _refuse_uneven(batch: int, world: int) -> None:
    if batch < 1 or batch % world:
        found = f"{batch} rows on {world} processes"
        fix = f"a batch of {max(1, round(batch / world)) * world} rows"
        raise ConfigError(
            [Problem("batch.sequences", found, "each process takes the same number of rows, at least 1", fix)]
        )
