"""An attention and a recurrence side by side in one layer: both read one norm, and their outputs are added."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Self

from pydantic import PositiveFloat, field_validator
from torch import Tensor

from builder.component import Config as BaseConfig
from builder.component import Room, Site
from builder.components.attention import Mixer
from builder.model.context import Context
from builder.registry import register

from ._both import Both, inside


@register("ssm", "hybrid_head")
class HybridHead(Both):
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
        def _both_stand_in_a_mixer(cls, value: Any) -> Any:
            return inside(value)

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

    @property
    def sides(self) -> tuple[Mixer, Mixer]:
        return self.attention, self.ssm

    def flops(self, tokens: int) -> int:
        return self.attention.flops(tokens) + self.ssm.flops(tokens)

    def divide(self, ranks: int) -> dict[str, str]:
        sides = {"attention": self.attention.divide(ranks), "ssm": self.ssm.divide(ranks)}
        return {f"{side}.{name}": axis for side, plan in sides.items() for name, axis in plan.items()}


def _times(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1 else x * factor
