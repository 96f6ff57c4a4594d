"""Batches of token windows: endless and resumable for training, every token once for validation."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, IterableDataset

from ..errors import ConfigError, Problem
from .corpus import Corpus
from .order import batch_starts

Batch = dict[str, torch.Tensor]


class TrainBatches(IterableDataset[Batch]):
    """Yields `{"tokens": (B / world, T + 1) int64}` from `start_step` on, without end.

    Each rank takes its rows of the same global batch, so that step s holds the same samples on any number of ranks.
    Raises ConfigError when the ranks can't share a batch evenly.
    """

    def __init__(
        self,
        tokens: torch.Tensor,
        *,
        batch: int,
        length: int,
        seed: int,
        start_step: int = 0,
        rank: int = 0,
        world: int = 1,
    ):
        _refuse_uneven(batch, world)
        self.tokens, self.batch, self.length, self.seed = tokens, batch, length, seed
        self.start_step, self.rank, self.world = start_step, rank, world

    def __iter__(self) -> Iterator[Batch]:
        step = self.start_step
        while True:
            yield self.at(step)
            step += 1

    def at(self, step: int) -> Batch:
        """The batch of one step."""
        starts = batch_starts(len(self.tokens), self.length, self.batch, self.seed, step)
        starts = starts[self.rank :: self.world]  # (B,)
        return {"tokens": self.tokens[starts[:, None] + torch.arange(self.length + 1)]}  # (B, T + 1)


class ValBatches(IterableDataset[Batch]):
    """Windows of T + 1 tokens every T tokens, in order: each token but the very first is a target exactly once.

    Yields `{"tokens": (B / world, T + 1) int64}`. A batch that holds padding (`pad`, on the right) also carries
    `"attention_mask"` (B / world, T + 1) bool, true on real tokens. So that every rank takes part in every batch, the
    last one may be filled up with rows that hold one real token and no target.
    """

    def __init__(self, tokens: torch.Tensor, *, batch: int, length: int, pad: int, rank: int = 0, world: int = 1):
        _refuse_uneven(batch, world)
        self.tokens, self.batch, self.length, self.pad = tokens, batch, length, pad
        self.rank, self.world = rank, world
        last = len(tokens) - 1
        starts = torch.arange(0, last, length)
        # A window that starts on the last token has nothing to predict.
        filler = torch.full((-len(starts) % world,), last)
        self.starts = torch.cat([starts, filler])

    def __len__(self) -> int:
        return -(-len(self.starts) // self.batch)

    def __iter__(self) -> Iterator[Batch]:
        for chunk in self.starts.split(self.batch):
            index = chunk[self.rank :: self.world, None] + torch.arange(self.length + 1)  # (B, T + 1)
            real = index < len(self.tokens)  # (B, T + 1)
            tokens = self.tokens[index.clamp(max=len(self.tokens) - 1)].masked_fill(~real, self.pad)  # (B, T + 1)
            yield {"tokens": tokens} if real.all() else {"tokens": tokens, "attention_mask": real}


def train_loader(
    corpus: Corpus, *, batch: int, length: int, seed: int, start_step: int = 0, rank: int = 0, world: int = 1
) -> DataLoader[Batch]:
    """Training batches as TrainBatches yields them; `batch` counts the rows of all ranks together."""
    data = TrainBatches(
        corpus.train, batch=batch, length=length, seed=seed, start_step=start_step, rank=rank, world=world
    )
    return DataLoader(data, batch_size=None, num_workers=0, pin_memory=torch.cuda.is_available())


def val_loader(corpus: Corpus, *, batch: int, length: int, rank: int = 0, world: int = 1) -> DataLoader[Batch]:
    """Validation batches as ValBatches yields them; `batch` counts the rows of all ranks together."""
    data = ValBatches(corpus.val, batch=batch, length=length, pad=corpus.tokenizer.pad, rank=rank, world=world)
    return DataLoader(data, batch_size=None, num_workers=0, pin_memory=torch.cuda.is_available())


def _refuse_uneven(batch: int, world: int) -> None:
    if batch < 1 or batch % world:
        found = f"{batch} rows on {world} processes"
        fix = f"a batch of {max(1, round(batch / world)) * world} rows"
        raise ConfigError(
            [Problem("batch.sequences", found, "each process takes the same number of rows, at least 1", fix)]
        )
