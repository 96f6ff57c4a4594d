"""The gated feed-forward network: SwiGLU with silu, GEGLU with gelu, ReGLU with relu."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from pydantic import PositiveInt
from torch import Tensor

from builder.component import Config as BaseConfig
from builder.component import Site
from builder.components.ffn import ACTIVATIONS, FFN, Activation, inner_width
from builder.finding import Finding
from builder.model.context import Context
from builder.model.linear import Linear
from builder.registry import register


@register("ffn", "glu")
class GLU(FFN):
    """GLU(x) = (act(x W_gate) * x W_up) W_down; 3 d d_ff weights (chapter 3.5; Shazeer 2020)."""

    class Config(BaseConfig):
        """`d_ff` is the inner width; about 8/3 d gives the weights of an mlp with 4 d."""

        name: str = "glu"
        d_ff: PositiveInt
        activation: Activation = "silu"
        bias: bool = False

        def shrink(self, site: Site) -> Self:
            return self.model_copy(update={"d_ff": 16})

    def __init__(self, config: GLU.Config, site: Site):
        super().__init__()
        self.gate = Linear(site.d_model, config.d_ff, bias=config.bias)
        self.up = Linear(site.d_model, config.d_ff, bias=config.bias)
        self.down = Linear(config.d_ff, site.d_model, bias=config.bias, role="residual")
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        hidden = self.activation(self.gate(x)) * self.up(x)  # (B, T, F)
        ctx.record("ffn hidden", "B T F", *hidden.shape)
        return self.down(hidden)

    @classmethod
    def check(cls, config: GLU.Config, site: Site) -> Iterable[Finding]:
        yield inner_width(config.d_ff, 3, config.activation, config.bias, site)
