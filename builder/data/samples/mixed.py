"""Rows of several sources, each of which gives its share of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..order import shuffled
from . import MASKS, Batch, Samples

BLOCK = 1024
"""Of so many rows in training each source has its share exactly, in an order drawn anew."""

_CHUNK = 64  # rows of a source that are asked for together


class Mixed(Samples):
    """The rows of `sources`, of N in training in proportion to `weights`; a pick is that of a source, times the number
    of sources, plus the number of its own.

    Which source row k = step * batch + row is of hangs on the seed and k alone, and so does which of its rows: each
    source is read in its own order, epoch after epoch, however fast. In validation the first rows, however many, are of
    each source in its share. `names`: what the sources are called.
    """

    def __init__(self, sources: Sequence[Samples], weights: Sequence[float], names: Sequence[str] = ()):
        self.sources, self.weights, self.parts = sources, weights, tuple(names)
        self.pad = sources[0].pad
        self.quotas = torch.tensor(shares(weights))  # (S,)
        self.owners = torch.arange(len(sources)).repeat_interleave(self.quotas)  # (BLOCK,)

    def picks(self, seed: int, step: int, batch: int) -> Tensor:
        rows = torch.arange(step * batch, (step + 1) * batch)  # (B,)
        block, place = rows // BLOCK, rows % BLOCK  # (B,)
        owners, numbers = torch.empty_like(rows), torch.empty_like(rows)
        for met in block.unique().tolist():
            here = block == met
            owners[here] = self._owners(seed, met)[place[here]]
            numbers[here] = self._numbers(seed, met)[place[here]]
        made = torch.empty_like(rows)
        for source in owners.unique().tolist():
            here = owners == source
            made[here] = self._read(source, numbers[here], seed) * len(self.sources) + source
        return made

    def _owners(self, seed: int, block: int) -> Tensor:
        """Which source each row of a block is of: (BLOCK,)."""
        return self.owners[shuffled(BLOCK, seed, block)]

    def _numbers(self, seed: int, block: int) -> Tensor:
        """Which of the rows of its source each row of a block is, from the first of the run on: (BLOCK,)."""
        owners = self._owners(seed, block)
        before = torch.nn.functional.one_hot(owners, len(self.sources)).cumsum(0)  # (BLOCK, S)
        return block * self.quotas[owners] + before.gather(1, owners[:, None])[:, 0] - 1

    def _read(self, source: int, numbers: Tensor, seed: int) -> Tensor:
        """The picks of rows of a source by their numbers, which ascend: (R,)."""
        chunks = range(int(numbers[0]) // _CHUNK, int(numbers[-1]) // _CHUNK + 1)
        picks = torch.cat([self.sources[source].picks(seed, chunk, _CHUNK) for chunk in chunks])
        return picks[numbers - chunks[0] * _CHUNK]

    def every(self) -> Tensor:
        count = len(self.sources)
        each = [samples.every() * count + source for source, samples in enumerate(self.sources)]
        place = torch.cat([(torch.arange(len(rows)).double() + 0.5) / len(rows) for rows in each])  # (N,), from 0 to 1
        return torch.cat(each)[place.argsort(stable=True)]

    def part_of(self, picks: Tensor) -> Tensor:
        return picks % len(self.sources)

    def rows(self, picks: Tensor, mine: slice = slice(None)) -> Batch:
        owners = self.part_of(picks)
        parts = []
        for source in owners.unique().tolist():
            here = (owners == source).nonzero().flatten()
            parts.append((here, self.sources[source].rows(picks[here] // len(self.sources))))
        return {key: value[mine] for key, value in _joined(parts, len(picks), self.pad).items()}

    def at(self, length: int) -> Mixed:
        return Mixed([samples.at(length) for samples in self.sources], self.weights, self.parts)

    @property
    def largest_id(self) -> int:
        return max(samples.largest_id for samples in self.sources)


def shares(weights: Sequence[float]) -> list[int]:
    """How many of BLOCK rows each source has, in proportion to its weight: what is left over goes to the largest
    remainders."""
    exact = [weight / math.fsum(weights) * BLOCK for weight in weights]
    made = [int(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda source: made[source] - exact[source])
    for source in by_remainder[: BLOCK - sum(made)]:
        made[source] += 1
    return made


def _joined(parts: Sequence[tuple[Tensor, Batch]], count: int, pad: int) -> Batch:
    """Batches of text as one, each at its places (R,) in it; what only some of them state is stated for all."""
    width = max(batch["tokens"].shape[1] for _, batch in parts)
    keys = {key for _, batch in parts for key in batch}
    mask = MASKS["tokens"]
    if any(batch["tokens"].shape[1] < width for _, batch in parts):
        keys.add(mask)
    made: Batch = {}
    for key in sorted(keys):
        kind = torch.int64 if key in ("tokens", "segments") else torch.bool
        made[key] = torch.full((count, width), pad if key == "tokens" else 0, dtype=kind)
        for places, batch in parts:
            own = batch["tokens"].shape[1]
            # What a batch doesn't state: all is real, may be a target, and is of one document.
            otherwise = batch.get(mask, torch.ones_like(batch["tokens"], dtype=torch.bool))
            made[key][places, :own] = batch.get(key, otherwise).to(kind)
    return made
