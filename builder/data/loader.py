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
    """Every row of `samples` once, or the first `limit`, in batches as `collate` makes them; a row is drawn for from
    its number alone.

    All rows of a batch are of one of the samples' parts, `owners` says which, so that what is summed over a batch is of
    one source. So that every rank takes part in every batch, the last one of a part may be filled up with rows of one
    real token and nothing that counts.
    """

    def __init__(
        self,
        samples: Samples,
        *,
        batch: int,
        collate: Collate = as_it_is,
        rank: int = 0,
        world: int = 1,
        limit: int | None = None,
    ):
        _refuse_uneven(batch, world)
        self.samples, self.collate, self.rank, self.world = samples, collate, rank, world
        self.picks = samples.every()[:limit]
        owners = samples.part_of(self.picks)  # (N,)
        parts = [(owners == part).nonzero().flatten() for part in owners.unique()]
        self.numbers = sorted((some for part in parts for some in part.split(batch)), key=lambda some: int(some[0]))
        self.owners = [int(owners[some[0]]) for some in self.numbers]

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[Batch]:
        mine = slice(self.rank, None, self.world)
        for some in self.numbers:
            filler = torch.arange(len(some) + -len(some) % self.world) >= len(some)
            numbers = torch.cat([some, some[-1:].expand(int(filler.sum()))])
            batch = self.samples.rows(self.picks[numbers], mine)
            if filler.any():
                batch = _emptied(batch, filler[mine], self.samples)
            yield self.collate(batch, numbers[mine].tolist())


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


def val_loader(samples: Samples, **how: Any) -> DataLoader[Batch]:
    """Validation batches as ValBatches yields them, whose `batch` counts the rows of all ranks together."""
    data = ValBatches(samples, **how)
    return DataLoader(data, batch_size=None, num_workers=0, pin_memory=torch.cuda.is_available())


def _refuse_uneven(batch: int, world: int) -> None:
    if batch < 1 or batch % world:
        found = f"{batch} rows on {world} processes"
        fix = f"a batch of {max(1, round(batch / world)) * world} rows"
        raise ConfigError(
            [Problem("batch.sequences", found, "each process takes the same number of rows, at least 1", fix)]
        )
