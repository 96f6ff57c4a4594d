"""Which slots of a sequence the keys of a layer stand at, when its state keeps only the last ones."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Span:
    """`length` slots from `first` on, in the order that the state holds them: rolled by `turn`.

    key j stands at slot first + (j - turn) mod length
    """

    first: int
    length: int
    turn: int = 0

    def of(self, x: Tensor) -> Tensor:
        """What belongs to these keys, of something kept by slot: x (B, L, ...) -> (B, length, ...)."""
        part = x[:, self.first : self.first + self.length]
        return part.roll(self.turn, 1) if self.turn else part
