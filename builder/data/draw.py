"""Random numbers that are a pure function of a row's key, drawn for many rows at once."""

from __future__ import annotations

import hashlib

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

Keys = NDArray[numpy.uint64]

_GOLDEN = numpy.uint64(0x9E3779B97F4A7C15)


def mixed(bits: Keys) -> Keys:
    """The finaliser of SplitMix64, a bijection in which every bit of the result hangs on every bit given.

    Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators"; constants of its variant 13 by Stafford.
    """
    bits = (bits ^ (bits >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> numpy.uint64(31))


def keys_of(name: str, numbers: Tensor) -> Tensor:
    """The keys of rows by their numbers (B,), others for each `name`: (B,) int64, of which every bit is drawn."""
    first = numpy.frombuffer(hashlib.sha256(name.encode()).digest()[:8], dtype=numpy.uint64)
    return torch.from_numpy(mixed(first + numbers.numpy().astype(numpy.uint64) * _GOLDEN).view(numpy.int64))


class Draw:
    """The numbers of B rows, each from its key: row i draws the same whatever stands beside it."""

    def __init__(self, keys: Keys):
        self.keys = keys
        self._drawn = 0

    def bits(self, count: int) -> Keys:
        """The next 64-bit numbers of SplitMix64 with the key as its seed: (B, count)."""
        places = numpy.arange(self._drawn + 1, self._drawn + count + 1, dtype=numpy.uint64)
        self._drawn += count
        return mixed(self.keys[:, None] + places * _GOLDEN)

    def apart(self) -> Draw:
        """A draw of its own for each row: what is taken of it moves nothing here."""
        return Draw(self.bits(1)[:, 0])

    def uniform(self, count: int) -> Tensor:
        """In [0, 1): (B, count) float64."""
        return torch.from_numpy((self.bits(count) >> numpy.uint64(11)) * 2.0**-53)

    def below(self, limit: int, count: int) -> Tensor:
        """Whole numbers from 0 to `limit` - 1: (B, count) int64."""
        return (self.uniform(count) * limit).long()

    def weighted(self, weights: Tensor, count: int) -> Tensor:
        """Distinct numbers from 0 to N - 1, each next one in proportion to `weights` (N,): (B, count) int64.

        The first to come of N that wait for times exponential in their weights (Efraimidis & Spirakis 2006).
        """
        waits = -torch.log1p(-self.uniform(len(weights))) / weights  # (B, N)
        return waits.topk(count, largest=False).indices

    def distinct(self, limit: int, count: int) -> Tensor:
        """Distinct numbers from 0 to `limit` - 1, in any order alike: (B, count) int64."""
        if limit <= 8 * count:
            return self.weighted(torch.ones(limit), count)
        again = self.apart()
        found = again.below(limit, count)  # (B, count)
        while (twice := _seen_before(found)).any():  # what is drawn anew favours no number
            found = torch.where(twice, again.below(limit, count), found)
        return found


def _seen_before(numbers: Tensor) -> Tensor:
    """Where a number of a row already stands before: (B, N) bool."""
    order = numbers.sort(stable=True)
    twice = torch.zeros_like(numbers, dtype=torch.bool)
    return twice.scatter(1, order.indices[:, 1:], order.values[:, 1:] == order.values[:, :-1])
