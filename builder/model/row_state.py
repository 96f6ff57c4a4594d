"""What a recurrent layer remembers: a few tensors that are as large for a long row as for a short one."""

from __future__ import annotations

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
