"""What a layer is told besides its input: positions, mask, its own state, and a place for what it reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from .mask import Mask
from .positions import Positions

if TYPE_CHECKING:
    from builder.components.position import Position


@dataclass(frozen=True)
class Shape:
    """One line of the shape ledger (chapter 3.7): which tensor, its axes by name, and their sizes."""

    layer: int | None
    tensor: str
    axes: str
    sizes: tuple[int, ...]

    @property
    def where(self) -> str:
        """Which layer the tensor is in, or `model`."""
        return "model" if self.layer is None else f"layer {self.layer}"


@dataclass
class Aux:
    """What layers report beside their output: `losses` are added to the training loss, `stats` are logged.

    `tallies`, int64, are counted in training, by the module that counts: they are summed over everything that one
    optimizer step reads, and given to the module's `settle`. `shapes` is None unless someone keeps the shape ledger.
    """

    losses: dict[str, Tensor] = field(default_factory=dict)
    stats: dict[str, Tensor] = field(default_factory=dict)
    tallies: dict[nn.Module, Tensor] = field(default_factory=dict)
    shapes: list[Shape] | None = None


@dataclass(frozen=True)
class Context:
    """One layer's view of one pass.

    positions       of the T tokens of this pass
    key_positions   of every slot so far: those of the state, then this pass
    mask            what may be seen (a mixer narrows it with `mask.within(window)`)
    position        this layer's position scheme, with the hooks `rotate` and `bias`
    state           this layer's state, or None in training
    aux             where losses, statistics and shapes are reported
    """

    positions: Positions
    key_positions: Positions
    mask: Mask
    position: Position
    layer: int | None
    aux: Aux
    state: Any = None

    def record(self, tensor: str, axes: str, *sizes: int) -> None:
        """Writes a line of the shape ledger, when one is kept."""
        if self.aux.shapes is not None:
            self.aux.shapes.append(Shape(self.layer, tensor, axes, sizes))
