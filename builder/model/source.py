"""What a decoder reads of a source: hidden states or what was made of them, where they stand, and which are real."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .mask import Mask
from .positions import Positions

if TYPE_CHECKING:
    from builder.components.position import Position


class CrossState:
    """Keys and values (B, S, K, E) that one layer made of a source, once; before that, the bytes of a source of
    `length` tokens."""

    def __init__(self, batch: int, length: int, key: tuple[int, ...], value: tuple[int, ...], dtype: torch.dtype):
        self.kept: tuple[Tensor, Tensor] | None = None
        numbers = sum(torch.Size(held).numel() for held in (key, value))
        self._expected = batch * length * numbers * dtype.itemsize

    def bytes(self) -> int:
        """Bytes held, or those that a source will take."""
        return self._expected if self.kept is None else sum(part.nbytes for part in self.kept)


@dataclass(frozen=True)
class Source:
    """One layer's view of a source of S tokens.

    hidden      (B, S, D), what the encoder made of it; None: each layer's keys and values are in its state
    positions   of its tokens
    mask        which of them are real
    position    this layer's scheme between its queries and the source
    state       where this layer keeps its keys and values; None: nothing is kept
    """

    hidden: Tensor | None
    positions: Positions
    mask: Mask
    position: Any = None
    state: CrossState | None = None
    states: Mapping[int, CrossState] = field(default_factory=dict)

    def of(self, layer: int, position: Position | None) -> Source:
        """What layer number `layer` sees of it, with the scheme that it has for this."""
        return replace(self, position=position, state=self.states.get(layer))


class SourceState:
    """The source of a state: its positions and padding, and for each layer that reads it what it made of it.

    It is told of a source once, and stays as it is however many tokens follow.
    """

    def __init__(self, layers: Mapping[int, CrossState]):
        self.layers = dict(layers)
        self.positions: Positions | None = None
        self.real: Tensor | None = None

    def keep(self, source: Source) -> Source:
        """The same source, of which the layers keep what they make. Raises ValueError when there is one already."""
        if self.positions is not None:
            raise ValueError("source: the state holds one already, and its layers what they made of it; new_state(...)")
        self.positions, self.real = source.positions, source.mask.real
        return replace(source, states=self.layers)

    def kept(self) -> Source:
        """The source that was kept; raises ValueError when there was none."""
        if self.positions is None:
            raise ValueError("source: the first pass over a state needs one: model(tokens, source=..., state=state)")
        return Source(None, self.positions, Mask(causal=False, real=self.real), states=self.layers)

    def bytes(self) -> int:
        """Bytes of memory held."""
        return sum(layer.bytes() for layer in self.layers.values())

    def reorder(self, index: Tensor) -> None:
        """Row b becomes the former row index[b], in place; index (B,) int64."""
        self._take(self, index)

    def picked(self, index: Tensor) -> SourceState:
        """A state of its own whose row j is this one's row index[j]; index (J,) int64, any J."""
        other = SourceState({number: _like(layer) for number, layer in self.layers.items()})
        other._take(self, index)
        return other

    def mark(self, ahead: int | None) -> bool:
        """Whether there was a source."""
        return self.positions is not None

    def parted(self, mark: bool) -> bool:
        """Whether `rewind` may keep some of the tokens since the mark."""
        return mark  # what was read since may be taken back in part, the source not

    def rewind(self, mark: bool, kept: int) -> None:
        """Forgets the source that came after the mark."""
        if not mark:
            self.positions = self.real = None
            for layer in self.layers.values():
                layer.kept = None

    def _take(self, other: SourceState, index: Tensor) -> None:
        """Becomes the rows `index` of another one, or of itself."""
        if other.positions is not None:
            ids, reach = other.positions.ids, other.positions.reach
            self.positions = Positions(
                ids[index] if len(ids) > 1 else ids, reach[index] if isinstance(reach, Tensor) else reach
            )
        self.real = None if other.real is None else other.real[index]
        for number, layer in self.layers.items():
            there = other.layers[number].kept
            layer.kept = None if there is None else (there[0][index], there[1][index])


def _like(layer: CrossState) -> CrossState:
    other = object.__new__(CrossState)
    other.kept, other._expected = None, layer._expected
    return other
