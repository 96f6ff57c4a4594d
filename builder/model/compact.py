"""The real tokens of each row moved together, so that what runs along a row never meets padding."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .context import Context


@dataclass(frozen=True)
class Compact:
    """How the T tokens of a pass lie when those that are real come first, in their order, and padding behind them.

        . a . b c    ->    a b c . .    ->    . a . b c
              `gather`         `scatter`, padding as zeros

    order       (B, T) int64, where each token came from; None: nothing is moved
    real        (B, T) bool, as moved; None: all are
    starts      (B, T) bool, as moved: where a document of a packed row begins; None: every row is one
    """

    order: Tensor | None = None
    real: Tensor | None = None
    starts: Tensor | None = None

    def gather(self, x: Tensor) -> Tensor:
        """x (B, T, ...) in the new order."""
        return x if self.order is None else _taken(x, self.order)

    def scatter(self, y: Tensor) -> Tensor:
        """y (B, T, ...) back in the order of the pass, zeros where padding stands: it gets no gradient."""
        if self.real is not None:
            y = torch.where(_wide(self.real, y), y, y.new_zeros(()))
        return y if self.order is None else _taken(y, self.order.argsort(dim=1))

    def ends(self, x: Tensor, before: Tensor) -> Tensor:
        """The last n real tokens of each row so far: x (B, T, ...) as moved, `before` (B, n, ...) those ahead of it."""
        together, kept = torch.cat((before, x), dim=1), before.shape[1]  # (B, n + T, ...)
        if self.real is None:
            return together[:, together.shape[1] - kept :]
        last = self.real.sum(1, keepdim=True) + torch.arange(kept, device=x.device)  # (B, n)
        return _taken(together, last)


def compact(ctx: Context, length: int) -> Compact:
    """How the `length` tokens of a pass lie together, made once for all layers that share its positions."""
    mask = ctx.mask
    if mask.real is None and mask.segments is None:
        return Compact()
    # the memo holds the tensors themselves, so that no others take their place in memory
    key = ("compact", mask.real, mask.segments, mask.past)
    return ctx.positions.once(key, lambda: _made(mask.real_queries(length), _present(mask.segments, mask.past, length)))


def _present(segments: Tensor | None, past: int, length: int) -> Tensor | None:
    return None if segments is None else segments[:, past : past + length]


def _made(real: Tensor | None, segments: Tensor | None) -> Compact:
    order = None
    if real is not None and real.shape[1] > 1:
        order = real.int().argsort(dim=1, descending=True, stable=True)  # (B, T)
        real = real.gather(1, order.expand(len(real), -1))
    if segments is not None and order is not None:
        segments = _taken(segments, order)
    return Compact(order, real, None if segments is None else _starts(segments))


def _starts(segments: Tensor) -> Tensor:
    starts = torch.ones_like(segments, dtype=torch.bool)  # (B, T)
    starts[:, 1:] = segments[:, 1:] != segments[:, :-1]
    return starts


def _taken(x: Tensor, index: Tensor) -> Tensor:
    """x (B, T, ...) at index (B, n) of each row."""
    return x.gather(1, _wide(index, x).expand(len(x), -1, *x.shape[2:]))


def _wide(told: Tensor, x: Tensor) -> Tensor:
    """(B, T) as (B, T, 1, ...), with as many axes as x."""
    return told.reshape(*told.shape, *(1 for _ in x.shape[2:]))
