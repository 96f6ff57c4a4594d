"""What a query may see: described anywhere, combined before the softmax, materialised only here."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .bias import Bias
from .span import Span


@dataclass(frozen=True)
class Mask:
    """The visible set of every query (chapter 3.3): all the conditions that are set must hold.

    Query t stands at slot `past` + t; the keys stand at the slots of `span`, or at all of them, counted from 0.

        causal      key <= query, or key and query both stand in the prefix
        prefix      prefix[b, slot]                 (B, L) bool, what is seen in both directions (Raffel et al. 2020)
        window      query - window < key < query + window    a query sees itself and the window - 1 slots on each side
        real        real[b, key]                    (B, L) bool, false where padding stands
        segments    segments[b, key] == segments[b, query]   (B, L), the documents of a packed row
        counted     (B, L) real tokens up to each slot, where padding stands between them: a window counts by these

    A row that sees nothing (a padding query) gives zeros, in every kernel.
    """

    causal: bool = True
    prefix: Tensor | None = None
    window: int | None = None
    real: Tensor | None = None
    segments: Tensor | None = None
    counted: Tensor | None = None
    past: int = 0
    span: Span | None = None
    _memo: dict = field(init=False, default_factory=dict, repr=False, compare=False)  # not handed on by `replace`

    def backward(self) -> Mask:
        """The same mask for what is carried from left to right: it shows nothing that stands behind a query."""
        return self if self.causal and self.prefix is None else self._sharing(replace(self, causal=True, prefix=None))

    def within(self, window: int | None) -> Mask:
        """The same mask seen through a sliding window too; what is written out is shared by the layers of a pass."""
        if window is None:
            return self
        both = [width for width in (self.window, window) if width is not None]
        return self._sharing(replace(self, window=min(both, default=None)))

    def over(self, span: Span) -> Mask:
        """The same mask over the keys that a state gave; what is written out is shared by the layers of a pass."""
        plain = span.first == 0 and span.turn == 0
        return self if plain and self.span is None else self._sharing(replace(self, span=None if plain else span))

    def apart(self) -> Mask:
        """The same mask: what was written out by now is shared, and what will be is not."""
        copy = replace(self)
        copy._memo.update(self._memo)
        return copy

    def real_queries(self, queries: int) -> Tensor | None:
        """Which of the queries are no padding, (B, T) bool; None: all."""
        return None if self.real is None else self.real[:, self.past : self.past + queries]

    def flag(self, queries: int, keys: int) -> bool | None:
        """What says it all without a tensor: True is torch's `is_causal`, False no mask; None: neither does."""
        everything = self.window is None or self.window >= keys
        if not everything or self._rows is not None:
            return None
        if not self.causal or (queries == 1 and (self.span is not None or self.past + 1 == keys)):
            return False  # a single query stands behind all keys of its state
        return True if self.past == 0 and queries == keys else None

    def lower(self, queries: int, keys: int, device: torch.device) -> tuple[bool, Tensor | None]:
        """The cheapest equal thing for a kernel: (is_causal, visible) with visible (B | 1, 1, T, S) bool or None.

        Plain causal attention, plain bidirectional attention and a single query over a state need no tensor.
        """
        flag = self.flag(queries, keys)
        return (flag, None) if flag is not None else (False, self.dense(queries, keys, device))

    def allows(self, b: Tensor, h: Tensor, t: Tensor, s: Tensor) -> Tensor:
        """Whether query t of row b may see key s, for index tensors that broadcast: the one place that decides it."""
        query, key = t + self.past, s
        if self.span is not None:
            key = self.span.first + (s - self.span.turn) % self.span.length
        seen = key >= 0
        if self.causal:
            both = False if self.prefix is None else self.prefix[b, key] & self.prefix[b, query]
            seen = seen & ((key <= query) | both)
        if self.window is not None:
            at, there = (query, key) if self.counted is None else (self.counted[b, query], self.counted[b, key])
            seen = seen & (there > at - self.window) & (there < at + self.window)
        if self.real is not None:
            seen = seen & self.real[b, key]
        if self.segments is not None:
            seen = seen & (self.segments[b, key] == self.segments[b, query])
        return seen

    def dense(self, queries: int, keys: int, device: torch.device) -> Tensor:
        """The visible set written out, (B | 1, 1, T, S) bool, for kernels that can't do without; made once per pass."""
        return self._once(("dense", queries, keys), lambda: self._write_out(queries, keys, device))

    def fold(self, bias: Bias | Tensor | None, queries: int, keys: int, like: Tensor) -> Tensor:
        """A bias, None for zeros, with -inf where nothing may be seen, in the dtype of `like`: (B | 1, H | 1, T, S).

        Made once per pass for each bias.
        """
        written = bias.dense() if isinstance(bias, Bias) else bias  # (B | 1, H, T, S)
        # the memo holds the bias itself, so that no other one takes its place in memory
        key = ("fold", written, queries, keys, like.dtype)
        return self._once(key, lambda: self._folded(written, queries, keys, like))

    def _folded(self, bias: Tensor | None, queries: int, keys: int, like: Tensor) -> Tensor:
        bias = like.new_zeros(1, 1, queries, keys) if bias is None else bias
        if self.flag(queries, keys) is not False:
            bias = bias.masked_fill(~self.dense(queries, keys, like.device), -torch.inf)
        return bias.to(like.dtype)  # (B | 1, H | 1, T, S)

    def blocks(self, queries: int, keys: int, device: torch.device) -> Any:
        """The visible set as FlexAttention's block mask, or None when everything is visible; made once per pass."""
        if self.flag(queries, keys) is False:
            return None
        return self._once(("blocks", queries, keys), lambda: self._block(queries, keys, device))

    def _sharing(self, seen: Mask) -> Mask:
        object.__setattr__(seen, "_memo", self._memo)
        return seen

    def _once(self, key: tuple[Any, ...], make: Any) -> Any:
        if torch.compiler.is_compiling() and not torch.is_grad_enabled():
            return make()  # a length in a key would become a constant of the graph, and each token need its own
        key = (self.causal, self.prefix, self.window, self.span, *key)
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]

    @property
    def _rows(self) -> int | None:
        """How many rows of the batch differ; None when all are alike."""
        return next((len(told) for told in (self.real, self.segments, self.prefix) if told is not None), None)

    def _write_out(self, queries: int, keys: int, device: torch.device) -> Tensor:
        row = torch.arange(self._rows or 1, device=device)[:, None, None, None]  # (B | 1, 1, 1, 1)
        query = torch.arange(queries, device=device)[:, None]  # (T, 1)
        return self.allows(row, row, query, torch.arange(keys, device=device)).expand(len(row), 1, queries, keys)

    def _block(self, queries: int, keys: int, device: torch.device) -> Any:
        from torch.nn.attention.flex_attention import create_block_mask  # imports the compiler, which few passes need

        mask = replace(self)  # what is made stands in this one's memo, and must not hold it in turn

        def seen(b: Tensor, h: Tensor, t: Tensor, s: Tensor) -> Tensor:  # it takes functions, and no methods
            return mask.allows(b, h, t, s)

        # compiled, it never holds the T x S predicate
        return create_block_mask(seen, self._rows, None, queries, keys, device=device, _compile=device.type == "cuda")
