"""What generation remembers: one State for the whole model, and in it one state per layer that only the layer reads."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from .source import SourceState


class LayerState(Protocol):
    """The contract of a mixer's state: its size, its rows, and the way back to where it was."""

    def bytes(self) -> int:
        """Bytes of memory held."""
        ...

    def reorder(self, index: Tensor) -> None:
        """Row b becomes the former row index[b], in place; index (B,) int64."""
        ...

    def picked(self, index: Tensor) -> Self:
        """A state of its own whose row j is this one's row index[j]; index (J,) int64, any J."""
        ...

    @property
    def forgets(self) -> bool:
        """Whether it keeps the last tokens only."""
        ...

    def widen(self, gap: int) -> None:
        """What forgets keeps `gap` slots more from now on, so that as many slots of padding push no token out."""
        ...

    def mark(self, ahead: int | None) -> Any:
        """Where the state is now, for `rewind`, as long as at most `ahead` tokens follow; None: any number."""
        ...

    def parted(self, mark: Any) -> bool:
        """Whether `rewind` may keep some of the tokens since the mark and take back the others."""
        ...

    def rewind(self, mark: Any, kept: int) -> None:
        """Takes back the tokens since the mark, all but the first `kept`, which is 0 unless `parted(mark)`."""
        ...


@dataclass(frozen=True)
class Mark:
    """Where a State was, and how many tokens may be read before it goes back there; None: any number."""

    length: int
    ahead: int | None
    padded: bool
    gapped: bool
    parts: tuple[Any, ...]


class State:
    """The state of a model: `model(tokens, state=state)` reads it and appends to it.

    layers      one LayerState per layer
    source      of an encoder-decoder, the source that its layers read; else None
    length      slots used so far, in every row
    positions   (B, L) int64, the position at each slot; (1, L) while all rows agree
    real        (B, L) bool, or None while no padding was seen
    """

    def __init__(
        self, layers: Sequence[LayerState], batch: int, max_length: int, device: torch.device,
        source: SourceState | None = None,
    ):  # fmt: skip
        self.layers = list(layers)
        self.source = source
        self.length = 0
        self.max_length = max_length
        self.positions = torch.zeros(1, max_length, dtype=torch.long, device=device)  # (1, L)
        self.real: Tensor | None = None
        self.gapped = False
        """Whether padding may stand behind real tokens."""
        self._batch = batch

    @property
    def _all(self) -> list[LayerState | SourceState]:
        return [*self.layers] if self.source is None else [*self.layers, self.source]

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
        if self.real is not None:
            self.real[:, self.length : end] = True if real is None else real
            if real is not None:
                self._make_room(end)

    def _make_room(self, end: int) -> None:
        """Where padding stands behind real tokens up to slot `end`, no layer forgets one for it."""
        forgetful = [layer for layer in self.layers if layer.forgets]
        gap = self._gap(end) if forgetful else 0
        self.gapped |= gap > 0 or not forgetful
        for layer in forgetful if gap else ():
            layer.widen(gap)

    def _gap(self, end: int) -> int:
        """How many slots up to `end` are new padding behind real tokens, in the row that has most; it waits."""
        assert self.real is not None
        real = self.real[:, :end]
        behind = (~real & (real.cumsum(1) > 0))[:, self.length :]
        return int(behind.sum(1).max()) if behind.numel() else 0

    def bytes(self) -> int:
        """Bytes that the layers hold, and what they made of a source."""
        return sum(layer.bytes() for layer in self._all)

    def reorder(self, index: Tensor) -> None:
        """Row b becomes the former row index[b], in every layer; index (B,) int64 with B rows, as for beam search.

        Raises ValueError for any other index.
        """
        if index.shape != (self._batch,) or index.is_floating_point() or index.dtype == torch.bool:
            found = f"index has shape {tuple(index.shape)} and dtype {index.dtype}"
            raise ValueError(f"{found}; give int64, the former row of each of the {self._batch} rows, or picked(index)")
        self.positions = self.positions[index] if len(self.positions) > 1 else self.positions
        self.real = None if self.real is None else self.real[index]
        for layer in self._all:
            layer.reorder(index)

    @property
    def rows(self) -> int:
        """Rows of the batch, B."""
        return self._batch

    def picked(self, index: Tensor) -> State:
        """A state of its own whose row j is this one's row index[j]; index (J,) int64, any J. This one stays."""
        chosen = copy(self)
        chosen._batch = len(index)
        chosen.positions = self.positions[index] if len(self.positions) > 1 else self.positions.clone()
        chosen.real = None if self.real is None else self.real[index]
        chosen.layers = [layer.picked(index) for layer in self.layers]
        chosen.source = None if self.source is None else self.source.picked(index)
        return chosen

    def copy(self) -> State:
        """The same once more: what either reads from now on, the other doesn't know."""
        return self.expand(1)

    def expand(self, n: int) -> State:
        """A state of its own with n rows for each of these, next to each other, as `repeat_interleave` has them."""
        return self.picked(torch.arange(self._batch, device=self.positions.device).repeat_interleave(n))

    def mark(self, ahead: int | None = None) -> Mark:
        """Where the state is now: `rewind(mark)` brings it back there, also twice.

        ahead  how many tokens may be read before that; None: any number, for which rings are put aside as a whole
        """
        parts = tuple(layer.mark(ahead) for layer in self._all)
        return Mark(self.length, ahead, self.real is not None, self.gapped, parts)

    def rewind(self, mark: Mark, kept: int = 0) -> int:
        """Takes back what was read since the mark, but for the first `kept` tokens of it, if all layers can part them.

        Returns how many stayed: `kept`, or 0 where a layer, such as a recurrent one, knows its past as a whole only.
        Raises ValueError, and changes nothing, when more tokens were read than the mark was made for.
        """
        read = self.length - mark.length
        if read < 0 or (mark.ahead is not None and read > mark.ahead):
            rule = f"the mark is of {mark.length} tokens, with at most {mark.ahead} more to be taken back"
            raise ValueError(f"{rule}, and the state holds {self.length}; write state.mark() for any number")
        if not all(layer.parted(told) for layer, told in zip(self._all, mark.parts, strict=True)):
            kept = 0
        for layer, told in zip(self._all, mark.parts, strict=True):
            layer.rewind(told, kept)
        self.length = mark.length + kept
        if not kept:
            self.real, self.gapped = self.real if mark.padded else None, mark.gapped
        return kept
