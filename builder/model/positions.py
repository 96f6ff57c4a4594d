"""Where the tokens of one pass stand, with a memo for whatever is derived from it once per pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from .span import Span

Made = TypeVar("Made")


class Positions:
    """The positions `ids` of some tokens, int64 (B, T), or (1, T) where all rows agree.

    Layers share one object, so that angles or biases are made once per pass and not once per layer. `reach` is how many
    real tokens the sequence may come to hold, those of this pass or those that the state has room for: an int, or (B,)
    where rows are padded.
    """

    def __init__(self, ids: Tensor, reach: int | Tensor | None = None):
        self.ids = ids
        self.reach = ids.shape[1] if reach is None else reach
        self._memo: dict[object, object] = {}

    def once(self, key: object, make: Callable[[], Made]) -> Made:
        """What `make` returns, made at the first call with this `key`; compiled without gradients, at each."""
        if torch.compiler.is_compiling() and not torch.is_grad_enabled():
            return make()  # a length in a key would become a constant of the graph, and each token need its own
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]  # type: ignore[return-value]

    def apart(self) -> Positions:
        """The same positions: what was made of them by now is shared, and what will be is not."""
        copy = Positions(self.ids, self.reach)
        copy._memo.update(self._memo)
        return copy

    def of(self, span: Span) -> Positions:
        """The positions of the keys that a span names, the same object for each layer that asks."""
        if span.length == self.ids.shape[1] and not span.turn:
            return self
        return self.once(span, lambda: Positions(span.of(self.ids), self.reach))


def count(length: int, start: int, device: torch.device) -> Tensor:
    """Positions start, start + 1, ...: (1, T), for rows without padding."""
    return torch.arange(start, start + length, device=device)[None]  # (1, T)


def count_real(real: Tensor, before: Tensor | None = None) -> Tensor:
    """Positions as the count of real tokens before: real (B, T) bool, `before` (B,) counted earlier; pads get 0."""
    seen = real.long().cumsum(1)  # (B, T)
    if before is not None:
        seen = seen + before[:, None]
    return (seen - 1).clamp_min(0)


def count_within(segments: Tensor, real: Tensor | None = None) -> Tensor:
    """Positions as the count of real tokens before in the same document: segments (B, T), real (B, T) bool or None."""
    seen = (torch.ones_like(segments, dtype=torch.bool) if real is None else real).long()  # (B, T)
    before = seen.cumsum(1) - seen  # in the whole row
    starts = torch.ones_like(segments, dtype=torch.bool)
    starts[:, 1:] = segments[:, 1:] != segments[:, :-1]
    return before - torch.where(starts, before, 0).cummax(1).values
