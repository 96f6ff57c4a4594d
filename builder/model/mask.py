"""What a query may see: described anywhere, combined before the softmax, materialised only here."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mask:
    """The visible set of every query (chapter 3.3): all the conditions that are set must hold.

    Query t stands at slot `past` + t; the S key slots are counted from 0.

        causal      key <= query
        window      key >  query - window           a query sees itself and the window - 1 slots before it
        real        real[b, key]                    (B, S) bool, false where padding stands
        segments    segments[b, key] == segments[b, query]   (B, S), the documents of a packed row

    A row that sees nothing (a padding query) gives zeros, in every kernel.
    """

    causal: bool = True
    window: int | None = None
    real: Tensor | None = None
    segments: Tensor | None = None
    past: int = 0
    _memo: dict = field(init=False, default_factory=dict, repr=False, compare=False)  # not handed on by `replace`

    def within(self, window: int | None) -> Mask:
        """The same mask seen through a sliding window too; what is written out is shared by the layers of a pass."""
        both = [width for width in (self.window, window) if width is not None]
        seen = replace(self, window=min(both, default=None))
        object.__setattr__(seen, "_memo", self._memo)
        return seen

    def lower(self, queries: int, keys: int, device: torch.device) -> tuple[bool, Tensor | None]:
        """The cheapest equal thing for a kernel: (is_causal, visible) with visible (B | 1, 1, T, S) bool or None.

        Plain causal attention, plain bidirectional attention and a single query over a state need no tensor.
        """
        everything = self.window is None or self.window >= keys
        only_order = everything and self.real is None and self.segments is None
        if only_order and not self.causal:
            return False, None
        if only_order and self.past == 0 and queries == keys:
            return True, None
        if only_order and queries == 1 and self.past + 1 == keys:
            return False, None
        return False, self.dense(queries, keys, device)

    def dense(self, queries: int, keys: int, device: torch.device) -> Tensor:
        """The visible set written out, (B | 1, 1, T, S) bool, for kernels that can't do without; made once per pass."""
        key = (self.window, queries, keys)
        if key not in self._memo:
            self._memo[key] = self._write_out(queries, keys, device)
        return self._memo[key]

    def _write_out(self, queries: int, keys: int, device: torch.device) -> Tensor:
        query = torch.arange(self.past, self.past + queries, device=device)[:, None]  # (T, 1)
        key = torch.arange(keys, device=device)[None]  # (1, S)
        seen = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device)  # (1, 1, T, S)
        if self.causal:
            seen = seen & (key <= query)
        if self.window is not None:
            seen = seen & (key > query - self.window)
        if self.real is not None:
            seen = seen & self.real[:, None, None, :]  # (B, 1, T, S)
        if self.segments is not None:
            own = self.segments[:, self.past : self.past + queries]  # (B, T)
            seen = seen & (own[:, None, :, None] == self.segments[:, None, None, :])  # (B, 1, T, S)
        return seen
