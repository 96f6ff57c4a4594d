"""What generation remembers: one State for the whole model, and in it one state per layer that only the layer reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


class LayerState(Protocol):
    """The contract of a mixer's state: it knows its size and follows a reordering of the batch."""

    def bytes(self) -> int:
        """Bytes of memory held."""
        ...

    def reorder(self, index: Tensor) -> None:
        """Row b becomes the former row index[b], in place; index (B,) int64."""
        ...


class KVState:
    """Keys and values of one attention layer, (B, L, K, E) each: allocated once for L slots, filled in place.

    Raises ValueError when more than L slots are appended.
    """

    def __init__(self, batch: int, length: int, heads: int, width: int, *, device: torch.device, dtype: torch.dtype):
        self.keys = torch.empty(batch, length, heads, width, device=device, dtype=dtype)  # (B, L, K, E)
        self.values = torch.empty(batch, length, heads, width, device=device, dtype=dtype)  # (B, L, K, E)
        self.used = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Writes k and v (B, T, K, E) behind what is there; returns all keys and values so far, (B, S, K, E)."""
        start, end = self.used, self.used + k.shape[1]
        if end > self.keys.shape[1]:
            raise ValueError(f"the state holds {self.keys.shape[1]} tokens and {end} are asked of it")
        self.keys[:, start:end] = k
        self.values[:, start:end] = v
        self.used = end
        return self.keys[:, :end], self.values[:, :end]

    def bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    def reorder(self, index: Tensor) -> None:
        for held in (self.keys[:, : self.used], self.values[:, : self.used]):
            held.copy_(held[index])


class State:
    """The state of a model: `model(tokens, state=state)` reads it and appends to it.

    layers      one LayerState per layer
    length      slots used so far, in every row
    positions   (B, L) int64, the position at each slot
    real        (B, L) bool, or None while no padding was seen
    """

    def __init__(self, layers: Sequence[LayerState], batch: int, max_length: int, device: torch.device):
        self.layers = list(layers)
        self.length = 0
        self.max_length = max_length
        self.positions = torch.zeros(batch, max_length, dtype=torch.long, device=device)  # (B, L)
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
        self.positions = self.positions[index]
        self.real = None if self.real is None else self.real[index]
        for layer in self.layers:
            layer.reorder(index)
