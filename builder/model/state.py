"""What generation remembers: one State for the whole model, and in it one state per layer that only the layer reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from .span import Span


class LayerState(Protocol):
    """The contract of a mixer's state: it knows its size and follows a reordering of the batch."""

    def bytes(self) -> int:
        """Bytes of memory held."""
        ...

    def reorder(self, index: Tensor) -> None:
        """Row b becomes the former row index[b], in place; index (B,) int64."""
        ...


class KVState:
    """Keys and values of one attention layer, (B, R, ...) each: allocated once, filled in place.

    Without a window R is `length`, and slot s lies in row s. With one only the last `window` slots are kept, in a ring
    of R = min(length, window) rows: slot s lies in row s mod R. Raises ValueError past `length` slots.
    """

    def __init__(
        self, batch: int, length: int, key: tuple[int, ...], value: tuple[int, ...],
        *, window: int | None = None, device: torch.device, dtype: torch.dtype,
    ) -> None:  # fmt: skip
        self.length = length
        self.rows = length if window is None else min(length, window)
        self.keys = torch.empty(batch, self.rows, *key, device=device, dtype=dtype)  # (B, R, K, E)
        self.values = torch.empty(batch, self.rows, *value, device=device, dtype=dtype)  # (B, R, K, E)
        self.used = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Span]:
        """Writes k and v (B, T, ...) behind what is there; returns all keys and values that these T may read,
        (B, S, ...) each, and the slots they stand at."""
        start, end = self.used, self.used + k.shape[1]
        if end > self.length:
            raise ValueError(f"the state holds {self.length} tokens and {end} are asked of it")
        self.used = end
        if end <= self.rows or k.shape[1] == 1:
            row, held = start % self.rows, min(end, self.rows)
            self.keys[:, row : row + k.shape[1]] = k
            self.values[:, row : row + k.shape[1]] = v
            turn = end % self.rows if end > self.rows else 0
            return self.keys[:, :held], self.values[:, :held], Span(end - held, held, turn)
        return self._wrap(start, end, k, v)

    def _wrap(self, start: int, end: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Span]:
        """Several tokens that go round the ring: what they may read is taken out before they write over it."""
        slots = torch.arange(end, device=k.device)
        k, v = k.to(self.keys.dtype), v.to(self.values.dtype)  # as an assignment would
        before = slots[max(0, start - self.rows + 1) : start] % self.rows
        after = slots[max(start, end - self.rows) :] % self.rows
        keys = torch.cat((self.keys[:, before], k), dim=1)  # (B, S, ...)
        values = torch.cat((self.values[:, before], v), dim=1)  # (B, S, ...)
        self.keys[:, after] = k[:, -len(after) :]
        self.values[:, after] = v[:, -len(after) :]
        return keys, values, Span(end - keys.shape[1], keys.shape[1])

    def bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    def reorder(self, index: Tensor) -> None:
        held = min(self.used, self.rows)
        for part in (self.keys[:, :held], self.values[:, :held]):
            part.copy_(part[index])


class State:
    """The state of a model: `model(tokens, state=state)` reads it and appends to it.

    layers      one LayerState per layer
    length      slots used so far, in every row
    positions   (B, L) int64, the position at each slot; (1, L) while all rows agree
    real        (B, L) bool, or None while no padding was seen
    """

    def __init__(self, layers: Sequence[LayerState], batch: int, max_length: int, device: torch.device):
        self.layers = list(layers)
        self.length = 0
        self.max_length = max_length
        self.positions = torch.zeros(1, max_length, dtype=torch.long, device=device)  # (1, L)
        self.real: Tensor | None = None
        self._batch = batch

    @property
    def counted(self) -> Tensor | None:
        """Real tokens so far in each row, (B,); None while no padding was seen: then it is `length` everywhere."""
        return None if self.real is None else self.real[:, : self.length].sum(1)

    def refuse_misfit(self, tokens: Tensor) -> None:
        """Raises ValueError unless the state has a row for each row of tokens (B, T), and T slots left."""
        (batch, length), used = tokens.shape, self.length
        if batch != self._batch:
            raise ValueError(f"the state holds {self._batch} rows and the tokens have {batch}; make a new state")
        if used + length > self.max_length:
            found = f"the state has room for {self.max_length} tokens, {used} are in it and {length} more are given"
            raise ValueError(f"{found}; make it with new_state(batch_size, max_length={used + length} or more)")

    def write(self, positions: Tensor, real: Tensor | None) -> None:
        """Notes where the T tokens of this pass stand and which of them are real, at slots length..length+T."""
        end = self.length + positions.shape[1]
        if len(positions) > len(self.positions):
            self.positions = self.positions.repeat(self._batch, 1)  # (B, L)
        self.positions[:, self.length : end] = positions
        if real is not None and self.real is None:
            self.real = torch.ones(self._batch, self.max_length, dtype=torch.bool, device=self.positions.device)
        if real is not None and self.real is not None:
            self.real[:, self.length : end] = real

    def bytes(self) -> int:
        """Bytes that the layers hold."""
        return sum(layer.bytes() for layer in self.layers)

    def reorder(self, index: Tensor) -> None:
        """Row b becomes the former row index[b], in every layer; index (B,) int64 with B rows, as for beam search."""
        self.positions = self.positions[index] if len(self.positions) > 1 else self.positions
        self.real = None if self.real is None else self.real[index]
        for layer in self.layers:
            layer.reorder(index)
