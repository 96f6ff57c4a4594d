"""What mixers share that hold an attention and a recurrence: both states, and what is asked of either."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import torch
from torch import Tensor

from builder.component import Config as BaseConfig
from builder.component import Site, refuse
from builder.components.attention import Mixer
from builder.finding import Finding, Status
from builder.model.mask import Mask
from builder.model.state import LayerState


def inside(config: Any) -> Any:
    """The config of a mixer that may stand inside of another; refuses any other, in a validator."""
    kind = config.component
    if kind.part != "mixer":
        refuse("name", config.name, "a part that mixes the positions of the tokens themselves", "name=gqa")
    if issubclass(kind, Both):
        rule = (
            "an attention and a recurrence each: it holds both, and a layer knows the positions and heads of one alone"
        )
        refuse("name", config.name, rule, "name=mamba")
    return config


class Both(Mixer):
    """A mixer whose config has the slots `attention` and `ssm`; `sides` are the two, in this order."""

    @property
    def sides(self) -> tuple[Mixer, Mixer]:
        """The attention and the recurrence."""
        raise NotImplementedError

    def sees(self, mask: Mask) -> Mask:
        attention, ssm = self.sides
        seen = attention.sees(mask)
        return seen if seen.window is None else ssm.sees(mask)  # whose past goes back further than any window

    def new_state(self, batch: int, max_length: int, *, device: torch.device, dtype: torch.dtype) -> BothStates:
        return BothStates(*(side.new_state(batch, max_length, device=device, dtype=dtype) for side in self.sides))

    @staticmethod
    def position_of(config: Any) -> Any:
        return config.attention.component.position_of(config.attention)

    @staticmethod
    def heads_of(config: Any) -> int | None:
        heads: int | None = config.attention.component.heads_of(config.attention)
        return heads

    @classmethod
    def inner(cls, config: Any, site: Site) -> Iterable[tuple[str, BaseConfig, Site]]:
        return [("attention", config.attention, site), ("ssm", config.ssm, site)]

    @classmethod
    def computed_by(cls, config: Any, site: Site) -> str | None:
        told = [side.component.computed_by(side, place) for _, side, place in cls.inner(config, site)]
        return "; ".join(filter(None, told)) or None

    @classmethod
    def untrainable(cls, config: Any, site: Site, device: str) -> str | None:
        told = [side.component.untrainable(side, place, device) for _, side, place in cls.inner(config, site)]
        return next(filter(None, told), None)

    @classmethod
    def check(cls, config: Any, site: Site) -> Iterable[Finding]:
        window = getattr(config.attention, "window", None)
        if site.two_sided and window is not None:
            rule = "beside a recurrence, which reads all that stands before, no mask says what both see together"
            yield Finding(Status.FAIL, 2, "attention.window", str(window), rule, "attention.window=null")


class BothStates:
    """The states of an attention and of a recurrence, in this order."""

    def __init__(self, *parts: LayerState):
        self.parts = parts

    def bytes(self) -> int:
        """Bytes of memory held."""
        return sum(part.bytes() for part in self.parts)

    def reorder(self, index: Tensor) -> None:
        """Row b becomes the former row index[b], in place; index (B,) int64."""
        for part in self.parts:
            part.reorder(index)

    def picked(self, index: Tensor) -> Self:
        """A state of its own whose row j is this one's row index[j]; index (J,) int64, any J."""
        return type(self)(*(part.picked(index) for part in self.parts))

    @property
    def forgets(self) -> bool:
        """Whether one of them keeps the last tokens only."""
        return any(part.forgets for part in self.parts)

    def widen(self, gap: int) -> None:
        """Room for as many slots of padding among those that are kept."""
        for part in self.parts:
            part.widen(gap)

    def mark(self, ahead: int | None) -> tuple[Any, ...]:
        """Where both are now."""
        return tuple(part.mark(ahead) for part in self.parts)

    def parted(self, mark: tuple[Any, ...]) -> bool:
        """Whether both can keep some of the tokens since the mark."""
        return all(part.parted(at) for part, at in zip(self.parts, mark, strict=True))

    def rewind(self, mark: tuple[Any, ...], kept: int) -> None:
        """Takes back the tokens since the mark, all but the first `kept`."""
        for part, at in zip(self.parts, mark, strict=True):
            part.rewind(at, kept)
