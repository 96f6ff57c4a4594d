"""The two-layer feed-forward network of the Transformer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from pydantic import PositiveInt
from torch import Tensor

from builder.component import Config as BaseConfig
from builder.component import Site
from builder.components.ffn import FFN, divided_inside, inner_width
from builder.finding import Finding
from builder.model.activations import ACTIVATIONS, Activation
from builder.model.context import Context
from builder.model.linear import Linear
from builder.registry import register


@register("ffn", "mlp")
class MLP(FFN):
    """MLP(x) = act(x W_up + b_up) W_down + b_down; 2 d d_ff weights (chapter 3.5; Vaswani et al. 2017)."""

    class Config(BaseConfig):
        """`d_ff` is the inner width, often 4 d; `bias` gives both layers one."""

        name: str = "mlp"
        d_ff: PositiveInt
        activation: Activation = "gelu"
        bias: bool = True

        def grows(self) -> Iterable[str]:
            return ("d_ff",)

        def shrink(self, site: Site) -> Self:
            return self.model_copy(update={"d_ff": 16})

    def __init__(self, config: MLP.Config, site: Site):
        super().__init__()
        self.up = Linear(site.d_model, config.d_ff, bias=config.bias)
        self.down = Linear(config.d_ff, site.d_model, bias=config.bias, role="residual")
        self.activation = ACTIVATIONS[config.activation]

    def divide(self, ranks: int) -> dict[str, str]:
        return divided_inside(self, ("up",), "down", self.down.in_features, ranks)

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        hidden = self.activation(self.up(x))  # (B, T, F)
        ctx.record("ffn hidden", "B T F", *hidden.shape)
        return self.down(hidden)

    @classmethod
    def check(cls, config: MLP.Config, site: Site) -> Iterable[Finding]:
        yield inner_width(config.d_ff, 2, config.activation, config.bias, site)
