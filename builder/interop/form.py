"""How one tensor of theirs is made of tensors of ours: forms that can be undone without a bit lost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Size, Tensor


class Form(ABC):
    """`to_theirs` joins tensors of ours to one of theirs; `to_ours` is its exact inverse, told the shapes of ours.

    Both serve weights (rows out, columns in) and biases, and tensors on "meta", from which shapes are inferred.
    """

    @abstractmethod
    def to_theirs(self, ours: Sequence[Tensor]) -> Tensor:
        """Ours, in the order of the rule -> theirs."""

    @abstractmethod
    def to_ours(self, theirs: Tensor, shapes: Sequence[Size]) -> Sequence[Tensor]:
        """Theirs -> ours, in the order of the rule."""


class Rows(Form):
    """Ours one below the other: a fused [q; k; v]; a tensor alone stays as it is."""

    def to_theirs(self, ours: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(ours)) if len(ours) > 1 else ours[0]

    def to_ours(self, theirs: Tensor, shapes: Sequence[Size]) -> Sequence[Tensor]:
        return theirs.split([shape[0] for shape in shapes]) if len(shapes) > 1 else [theirs]


class Conv1D(Rows):
    """As `Rows`, and kept transposed, (in, out): GPT-2's layer of that name."""

    def to_theirs(self, ours: Sequence[Tensor]) -> Tensor:
        return _turned(super().to_theirs(ours))

    def to_ours(self, theirs: Tensor, shapes: Sequence[Size]) -> Sequence[Tensor]:
        return super().to_ours(_turned(theirs), shapes)


class Swapped(Rows):
    """As `Rows`, and the two halves of the first have changed places: [values; gate] of ours, [gate; values] theirs."""

    def to_theirs(self, ours: Sequence[Tensor]) -> Tensor:
        return super().to_theirs([_swapped(ours[0]), *ours[1:]])

    def to_ours(self, theirs: Tensor, shapes: Sequence[Size]) -> Sequence[Tensor]:
        first, *rest = super().to_ours(theirs, shapes)
        return [_swapped(first), *rest]


class Row(Form):
    """A vector as a matrix of one row."""

    def to_theirs(self, ours: Sequence[Tensor]) -> Tensor:
        return ours[0][None]

    def to_ours(self, theirs: Tensor, shapes: Sequence[Size]) -> Sequence[Tensor]:
        return [theirs[0]]


class Depthwise(Form):
    """A convolution of each channel by itself, (C, 1, width) with torch's axis of inputs; a bias stays as it is."""

    def to_theirs(self, ours: Sequence[Tensor]) -> Tensor:
        return ours[0].unsqueeze(1) if ours[0].ndim == 2 else ours[0]

    def to_ours(self, theirs: Tensor, shapes: Sequence[Size]) -> Sequence[Tensor]:
        return [theirs.squeeze(1) if theirs.ndim == 3 else theirs]


class Woven(Form):
    """Stacked experts, row by row in turn and then transposed (gpt-oss): gate 0, up 0, gate 1, up 1, ... as columns.

    Biases (X, F) are woven alike; a tensor alone is transposed, a bias alone stays as it is.
    """

    def to_theirs(self, ours: Sequence[Tensor]) -> Tensor:
        woven = torch.stack(list(ours), dim=2).flatten(1, 2) if len(ours) > 1 else ours[0]  # (X, n F, D) or (X, n F)
        return woven.mT if woven.ndim == 3 else woven

    def to_ours(self, theirs: Tensor, shapes: Sequence[Size]) -> Sequence[Tensor]:
        woven = theirs.mT if theirs.ndim == 3 else theirs
        return [woven[:, first :: len(shapes)] for first in range(len(shapes))]


@dataclass(frozen=True)
class Grouped(Form):
    """q, k, v fused group by group: for each KV head its queries, its key, its value, `d_head` rows each.

    With a KV head for each query head that is q, k, v head by head (GPT-NeoX, Bloom); with one KV head, q; k; v.
    """

    d_head: int

    def to_theirs(self, ours: Sequence[Tensor]) -> Tensor:
        groups = ours[1].shape[0] // self.d_head
        return torch.cat([part.unflatten(0, (groups, -1)) for part in ours], dim=1).flatten(0, 1)  # (K (n + 2) E, D)

    def to_ours(self, theirs: Tensor, shapes: Sequence[Size]) -> Sequence[Tensor]:
        groups = shapes[1][0] // self.d_head
        grouped = theirs.unflatten(0, (groups, -1))  # (K, (n + 2) E, D)
        parts = grouped.split([shape[0] // groups for shape in shapes], dim=1)
        return [part.flatten(0, 1) for part in parts]  # (rows, D) each


def _swapped(tensor: Tensor) -> Tensor:
    """The second half of the rows, then the first."""
    return torch.cat(tensor.chunk(2)[::-1])


def _turned(tensor: Tensor) -> Tensor:
    return tensor.T if tensor.ndim == 2 else tensor
