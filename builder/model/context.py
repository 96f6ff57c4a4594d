"""What a layer is told besides its input: positions, mask, its own state, and a place for what it reports."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from .mask import Mask
from .positions import Positions
from .whole_batch import WholeBatch

if TYPE_CHECKING:
    from builder.components.position import Position

    from .source import Source


@dataclass(frozen=True)
class Shape:
    """One line of the shape ledger (chapter 3.7): which tensor, its axes by name, and their sizes."""

    layer: int | None
    tensor: str
    axes: str
    sizes: tuple[int, ...]
    tower: str = ""

    @property
    def where(self) -> str:
        """Which tower and layer the tensor is in; `model` where it is in no layer of the one that answers."""
        layer = "" if self.layer is None else f"layer {self.layer}"
        return f"{self.tower} {layer}".strip() or "model"


@dataclass
class Aux:
    """What layers report beside their output.

    `losses`, means over the real tokens of the pass, are added to the training loss; `stats` are logged.
    `tallies`, int64, are counted in training, by the module that counts: they are summed over everything that one
    optimizer step reads, and given to the module's `settle`. `shapes` is None unless someone keeps the shape ledger.
    `whole` is told, not reported: the batch of which this pass reads a part; None: it is all there is.

    A layer doesn't know its number: what it reports as `moe/aux_loss` the model has as `moe/3/aux_loss`. So layers that
    are alike run the same code, and what is compiled for one serves them all.
    """

    losses: dict[str, Tensor] = field(default_factory=dict)
    stats: dict[str, Tensor] = field(default_factory=dict)
    tallies: dict[nn.Module, Tensor] = field(default_factory=dict)
    shapes: list[Shape] | None = None
    whole: WholeBatch | None = None

    def empty(self, layer: nn.Module | None = None) -> Aux:
        """A place for what a part of the pass reports, a `layer` or less of one: told and keeping what this one is."""
        whole = self.whole if self.whole is None or layer is None else self.whole.of(layer)
        return Aux(shapes=None if self.shapes is None else [], whole=whole)

    def add(self, told: Aux) -> None:
        """Takes over what was reported elsewhere; a module that several layers share has counted in each."""
        self.losses.update(told.losses)
        self.stats.update(told.stats)
        for module, tally in told.tallies.items():
            self.tallies[module] = self.tallies[module] + tally if module in self.tallies else tally
        if self.shapes is not None:
            self.shapes.extend(told.shapes or ())

    def add_layer(self, layer: int, told: Aux) -> None:
        """Takes over what a layer reported, under its number."""
        if not (told.losses or told.stats or told.tallies or told.shapes):
            return
        losses = {_numbered(name, layer): loss for name, loss in told.losses.items()}
        stats = {_numbered(name, layer): stat for name, stat in told.stats.items()}
        shapes = None if told.shapes is None else [replace(line, layer=layer) for line in told.shapes]
        self.add(Aux(losses, stats, told.tallies, shapes))

    def within(self, tower: str) -> Aux:
        """The same as reported by a tower of that name: `moe/3/aux_loss` as `moe/encoder/3/aux_loss`."""
        losses = {_numbered(name, tower): loss for name, loss in self.losses.items()}
        stats = {_numbered(name, tower): stat for name, stat in self.stats.items()}
        shapes = None if self.shapes is None else [replace(line, tower=tower) for line in self.shapes]
        return Aux(losses, stats, self.tallies, shapes)


def _numbered(name: str, place: int | str) -> str:
    first, *rest = name.split("/")
    return "/".join((first, str(place), *rest))


@dataclass(frozen=True)
class Context:
    """One layer's view of one pass.

    positions       of the T tokens of this pass
    key_positions   of every slot so far: those of the state, then this pass
    mask            what may be seen (a mixer narrows it with `mask.within(window)`)
    position        this layer's position scheme, with the hooks `rotate` and `bias`
    state           this layer's state, or None in training
    source          what a decoder reads beside, this layer's view of it, or None
    embedded        (B, T, D) what entered the first layer, where a mixer recalls it; None: a layer by itself
    aux             where losses, statistics and shapes are reported
    """

    positions: Positions
    key_positions: Positions
    mask: Mask
    position: Position
    aux: Aux
    state: Any = None
    source: Source | None = None
    embedded: Tensor | None = None

    def of_layer(self, position: Position, aux: Aux, state: Any, source: Source | None) -> Context:
        """The same pass as a layer sees it, with what is its own."""
        return Context(  # `replace` asks for each field by its name, in every layer for every token
            self.positions, self.key_positions, self.mask, position, aux, state, source, self.embedded
        )

    def record(self, tensor: str, axes: str, *sizes: int) -> None:
        """Writes a line of the shape ledger, when one is kept."""
        if self.aux.shapes is not None:
            self.aux.shapes.append(Shape(None, tensor, axes, sizes))

    def apart(self) -> Context:
        """The same view, in which nothing that is made is shared with other layers; what they have made by now is."""
        positions = self.positions.apart()
        keys = positions if self.key_positions is self.positions else self.key_positions.apart()
        return replace(self, positions=positions, key_positions=keys, mask=self.mask.apart())
