"""What a recurrent layer remembers: a few tensors that are as large for a long row as for a short one."""

from __future__ import annotations

from copy import copy
from typing import Self

from torch import Tensor


class RowState:
    """Named tensors (B, ...), written in place: `state["hidden"]` is read, `state["hidden"] = h` is copied in."""

    def __init__(self, **parts: Tensor):
        self.parts = parts

    def __getitem__(self, name: str) -> Tensor:
        return self.parts[name]

    def __setitem__(self, name: str, value: Tensor) -> None:
        self.parts[name].copy_(value)

    def bytes(self) -> int:
        """Bytes of memory held."""
        return sum(part.nbytes for part in self.parts.values())

    def reorder(self, index: Tensor) -> None:
        """Row b becomes the former row index[b], in place; index (B,) int64."""
        for part in self.parts.values():
            part.copy_(part[index])

    def picked(self, index: Tensor) -> Self:
        """A state of its own whose row j is this one's row index[j]; index (J,) int64, any J."""
        return self._with({name: part[index] for name, part in self.parts.items()})

    @property
    def forgets(self) -> bool:
        """Never: each token is mixed in, and padding isn't."""
        return False

    def widen(self, gap: int) -> None:
        """Nothing: it never forgets."""

    def mark(self, ahead: int | None) -> Self:
        """A copy: it is as large for any number of tokens to come."""
        return self._with({name: part.clone() for name, part in self.parts.items()})

    def parted(self, mark: Self) -> bool:
        """Never: tokens can't be taken out of what they were mixed into."""
        return False

    def rewind(self, mark: Self, kept: int) -> None:
        """Takes back all tokens since the mark."""
        for name, part in mark.parts.items():
            self[name] = part

    def _with(self, parts: dict[str, Tensor]) -> Self:
        other = copy(self)
        other.parts = parts
        return other
