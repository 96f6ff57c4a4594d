"""Rows that no text holds: drawn when they are read, each from its number alone."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy
import torch
from torch import Tensor

from ...errors import ConfigError, Problem
from ..draw import Draw, Keys, keys_of, mixed
from ..tokenizer import Tokenizer
from . import Batch, Samples, Shape

Rows = Callable[[Draw, Shape], Batch]
"""Makes a batch of the rows of a draw, all as wide as any row of the shape may be."""


class Drawn(Samples):
    """Rows that `make` draws, without end in training and `count` of them in validation; a pick is a row's key.

    Whether a row is held out is decided by a hash of all that stands in it, true of a share `fraction` of all rows: a
    row of the other side is drawn again, so that no row of validation is ever trained on.
    """

    def __init__(self, make: Rows, shape: Shape, tokenizer: Tokenizer, *, count: int, held: bool, fraction: float):
        self.make, self.shape, self.tokenizer, self.pad = make, shape, tokenizer, tokenizer.pad
        self.count, self.held, self.fraction = count, held, fraction

    def picks(self, seed: int, step: int, batch: int) -> Tensor:
        return keys_of(f"training/{seed}", torch.arange(step * batch, (step + 1) * batch))

    def every(self) -> Tensor:
        return keys_of("training/rows" if not self.held else "validation", torch.arange(self.count))

    def rows(self, picks: Tensor, mine: slice = slice(None)) -> Batch:
        keys = picks[mine].numpy().view(numpy.uint64).copy()
        made = self.make(Draw(keys), self.shape)
        wrong = self._wrong(made)
        for _ in range(self._tries):
            if not len(wrong):
                return made
            keys[wrong] = mixed(keys[wrong] + numpy.uint64(1))
            again = self.make(Draw(keys[wrong]), self.shape)
            for name, value in again.items():
                made[name][wrong] = value
            wrong = wrong[self._wrong(again)]
        side = "held out" if self.held else "trained on"
        found = f"{self.fraction}, and {self._tries} rows were drawn without one that is {side}"
        rule = "a share of all the rows that can be drawn is held out, and the others are trained on"
        raise ConfigError([Problem("data.val_fraction", found, rule, "longer rows, more symbols, or another fraction")])

    def at(self, length: int) -> Drawn:
        shape = Shape(length, self.shape.ahead)
        return Drawn(self.make, shape, self.tokenizer, count=self.count, held=self.held, fraction=self.fraction)

    @property
    def largest_id(self) -> int:
        return len(self.tokenizer) - 1

    @property
    def _tries(self) -> int:
        """After so many, one row in a billion is still of the wrong side where both have their share."""
        return math.ceil(21 / (self.fraction if self.held else 1 - self.fraction))

    def _wrong(self, batch: Batch) -> Keys:
        """The rows of the other side."""
        ids = torch.cat([batch[name] for name in ("source", "tokens") if name in batch], 1).numpy()  # (B, W)
        places = numpy.arange(ids.shape[1], dtype=numpy.uint64) << numpy.uint64(32)
        marks = mixed(mixed(ids.astype(numpy.uint64) + places).sum(1))  # (B,)
        held = marks < numpy.uint64(self.fraction * 2.0**64)
        return (held != self.held).nonzero()[0]
