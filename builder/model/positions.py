"""Where the tokens of one pass stand, with a memo for whatever is derived from it once per pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

Made = TypeVar("Made")


class Positions:
    """The positions `ids` of the tokens of one pass, int64 (B, T), or (1, T) where all rows agree.

    Layers share one object, so that angles or biases are made once per pass and not once per layer.
    """

    def __init__(self, ids: Tensor):
        self.ids = ids
        self._memo: dict[object, object] = {}

    def once(self, key: object, make: Callable[[], Made]) -> Made:
        """What `make` returns, made at the first call with this `key`."""
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]  # type: ignore[return-value]


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
