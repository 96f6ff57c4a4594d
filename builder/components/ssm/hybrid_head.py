"""An attention and a recurrence side by side in one layer: both read one norm, and their outputs are added."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any, Self

import torch
from pydantic import PositiveFloat, field_validator
from torch import Tensor

from builder.component import Config as BaseConfig
from builder.component import Room, Site, refuse
from builder.components.attention import Mixer
from builder.finding import Finding, Status
from builder.model.context import Context
from builder.model.mask import Mask
from builder.model.state import LayerState
from builder.registry import register


@register("ssm", "hybrid_head")
class HybridHead(Mixer):
    """y = attention_out attention(attention_in x) + ssm_out ssm(ssm_in x)  (Dong et al. 2024, "Hymba"; Falcon-H1).

             +--> attention --+
        x ---+                + --> y        the keys and values of the one, the state of the other
             +-----> ssm -----+

    The attention turns by its own position scheme, or by the model's; the recurrence needs none. Hymba normalises both
    outputs before it adds them; Falcon-H1 scales them.
    """

    class Config(BaseConfig):
        """The two mixers, and what each is multiplied by as it comes in and as it goes out."""

        name: str = "hybrid_head"
        attention: Annotated[BaseConfig, Room("attention")]
        ssm: Annotated[BaseConfig, Room("ssm", "recurrent")]
        attention_in: PositiveFloat = 1.0
        attention_out: PositiveFloat = 1.0
        ssm_in: PositiveFloat = 1.0
        ssm_out: PositiveFloat = 1.0

        @field_validator("attention", "ssm")
        @classmethod
        def _both_mix_positions(cls, value: Any) -> Any:
            if value.component.part != "mixer":
                refuse("name", value.name, "a part that mixes the positions of the tokens themselves", "gqa")
            return value

        def shrink(self, site: Site) -> Self:
            return self.model_copy(update={"attention": self.attention.shrink(site), "ssm": self.ssm.shrink(site)})

    def __init__(self, config: HybridHead.Config, site: Site):
        super().__init__()
        attention, ssm = config.attention, config.ssm
        self.attention: Mixer = attention.component(attention, site)
        self.ssm: Mixer = ssm.component(ssm, site)
        self.attention_factors = (config.attention_in, config.attention_out)
        self.ssm_factors = (config.ssm_in, config.ssm_out)

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        states = (None, None) if ctx.state is None else ctx.state.parts
        sides = ((self.attention, self.attention_factors), (self.ssm, self.ssm_factors))
        read, carried = (
            _times(mixer(_times(x, before), replace(ctx, state=state)), after)
            for (mixer, (before, after)), state in zip(sides, states, strict=True)
        )
        return read + carried  # (B, T, D)

    def sees(self, mask: Mask) -> Mask:
        seen = self.attention.sees(mask)
        return seen if seen.window is None else self.ssm.sees(mask)  # whose past goes back further than any window

    def flops(self, tokens: int) -> int:
        return self.attention.flops(tokens) + self.ssm.flops(tokens)

    def divide(self, ranks: int) -> dict[str, str]:
        sides = {"attention": self.attention.divide(ranks), "ssm": self.ssm.divide(ranks)}
        return {f"{side}.{name}": axis for side, plan in sides.items() for name, axis in plan.items()}

    def new_state(self, batch: int, max_length: int, *, device: torch.device, dtype: torch.dtype) -> BothStates:
        like = {"device": device, "dtype": dtype}
        return BothStates(*(side.new_state(batch, max_length, **like) for side in (self.attention, self.ssm)))

    @staticmethod
    def position_of(config: Any) -> Any:
        return config.attention.component.position_of(config.attention)

    @staticmethod
    def heads_of(config: Any) -> int | None:
        heads: int | None = config.attention.component.heads_of(config.attention)
        return heads

    @classmethod
    def check(cls, config: HybridHead.Config, site: Site) -> Iterable[Finding]:
        window = getattr(config.attention, "window", None)
        if site.two_sided and window is not None:
            rule = "beside a recurrence, which reads all that stands before, no mask says what both see together"
            yield Finding(Status.FAIL, 2, "attention.window", str(window), rule, "attention.window=null")

    @classmethod
    def computed_by(cls, config: HybridHead.Config, site: Site) -> str | None:
        told = (side.component.computed_by(side, site) for side in (config.attention, config.ssm))
        return "; ".join(filter(None, told)) or None

    @classmethod
    def untrainable(cls, config: HybridHead.Config, site: Site, device: str) -> str | None:
        told = (side.component.untrainable(side, site, device) for side in (config.attention, config.ssm))
        return next(filter(None, told), None)


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

    def picked(self, index: Tensor, gap: int = 0) -> Self:
        """A state of its own whose row j is this one's row index[j]; index (J,) int64, any J."""
        return type(self)(*(part.picked(index, gap) for part in self.parts))

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


def _times(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1 else x * factor
