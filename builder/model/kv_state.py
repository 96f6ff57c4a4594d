"""What an attention remembers: the keys and values of every token it may still read."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from .span import Span
from .state import LayerState


class KVState(LayerState):
    """Keys and values of one attention layer, (B, K, R, E) each: allocated once, filled in place.

    Without a window R is `length`, and slot s lies in row s. With one only the last `window` slots are kept, in a ring
    of R = min(length, window) rows: slot s lies in row s mod R. Where padding takes slots among them, `widen` gives it
    as many more. Raises ValueError past `length` slots.
    """

    def __init__(
        self, batch: int, length: int, key: tuple[int, int], value: tuple[int, int],
        *, window: int | None = None, device: torch.device, dtype: torch.dtype,
    ) -> None:  # fmt: skip
        self.length = length
        self.rows = length if window is None else min(length, window)
        (heads, width), (value_heads, value_width) = key, value
        self.keys = torch.empty(batch, heads, self.rows, width, device=device, dtype=dtype)  # (B, K, R, E)
        self.values = torch.empty(batch, value_heads, self.rows, value_width, device=device, dtype=dtype)
        self.used = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Span]:
        """Writes k and v (B, T, K, E) behind what is there; returns all keys and values that these T may read,
        (B, S, K, E) each, and the slots they stand at."""
        tokens, start = k.shape[1], self.used
        end = start + tokens
        if end > self.length:
            raise ValueError(f"the state holds {self.length} tokens and {end} are asked of it")
        self.used = end
        k, v = k.transpose(1, 2), v.transpose(1, 2)  # (B, K, T, E)
        if end <= self.rows or tokens == 1:
            row, held = start % self.rows, min(end, self.rows)
            self.keys.narrow(2, row, tokens).copy_(k)
            self.values.narrow(2, row, tokens).copy_(v)
            keys, values = self.keys.narrow(2, 0, held), self.values.narrow(2, 0, held)  # (B, K, S, E)
            span = Span(end - held, held, end % self.rows if end > self.rows else 0)
        else:
            keys, values, span = self._wrap(start, end, k, v)
        return keys.transpose(1, 2), values.transpose(1, 2), span  # (B, S, K, E)

    def _wrap(self, start: int, end: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Span]:
        """Several tokens that go round the ring: what they may read is taken out before they write over it."""
        slots = torch.arange(end, device=k.device)
        k, v = k.to(self.keys.dtype), v.to(self.values.dtype)  # as an assignment would
        before = slots[max(0, start - self.rows + 1) : start] % self.rows
        after = slots[max(start, end - self.rows) :] % self.rows
        keys = torch.cat((self.keys[:, :, before], k), dim=2)  # (B, K, S, E)
        values = torch.cat((self.values[:, :, before], v), dim=2)  # (B, K, S, E)
        self.keys[:, :, after] = k[:, :, -len(after) :]
        self.values[:, :, after] = v[:, :, -len(after) :]
        return keys, values, Span(end - keys.shape[2], keys.shape[2])

    def bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    @property
    def _held(self) -> int:
        return min(self.used, self.rows)

    def reorder(self, index: Tensor) -> None:
        for part in (self.keys, self.values):
            held = part.narrow(2, 0, self._held)
            held.copy_(held[index])

    def picked(self, index: Tensor) -> Self:
        chosen = copy(self)
        for name in ("keys", "values"):
            part: Tensor = getattr(self, name)
            held, there = part.narrow(2, 0, self._held), part.new_empty(len(index), *part.shape[1:])
            there.narrow(2, 0, self._held).copy_(held[index])
            setattr(chosen, name, there)
        return chosen

    @property
    def forgets(self) -> bool:
        return self.rows < self.length

    def widen(self, gap: int) -> None:
        rows = min(self.length, self.rows + gap)
        if rows == self.rows:
            return
        slots = torch.arange(self.used - self._held, self.used, device=self.keys.device)  # (S,)
        for name in ("keys", "values"):
            part: Tensor = getattr(self, name)
            (batch, heads, _, width), there = part.shape, slots % rows
            wider = part.new_zeros(batch, heads, rows, width)  # what was let go is seen by nobody, and must be finite
            wider[:, :, there] = part[:, :, slots % self.rows]
            setattr(self, name, wider)
        self.rows = rows

    def mark(self, ahead: int | None) -> _Mark:
        """Only what a ring will write over is taken aside: the tokens that follow hide nothing else."""
        ahead = self.rows if ahead is None else min(ahead, self.rows)
        if self.rows == self.length or self.used + ahead <= self.rows:
            return _Mark(self.used)
        slots = torch.arange(self.used, self.used + ahead, device=self.keys.device) - self.rows  # (A,)
        rows = slots % self.rows
        return _Mark(self.used, slots, self.keys[:, :, rows], self.values[:, :, rows])

    def parted(self, mark: _Mark) -> bool:
        return self.rows == self.length or self.used - mark.used <= self.rows

    def rewind(self, mark: _Mark, kept: int) -> None:
        taken = min(self.used - mark.used, self.rows)
        if mark.slots is not None and mark.keys is not None and mark.values is not None:
            rows = mark.slots[kept:taken] % self.rows  # of a ring that was widened since, too
            self.keys[:, :, rows] = mark.keys[:, :, kept:taken]
            self.values[:, :, rows] = mark.values[:, :, kept:taken]
        self.used = mark.used + kept


@dataclass(frozen=True)
class _Mark:
    """`used` slots, and the slots whose keys and values (B, K, A, E) the next `ahead` tokens write over."""

    used: int
    slots: Tensor | None = None
    keys: Tensor | None = None
    values: Tensor | None = None
