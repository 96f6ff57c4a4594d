"""The gated feed-forward network: SwiGLU with silu, GEGLU with gelu, ReGLU with relu."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from builder.component import Config as BaseConfig
from builder.component import Site
from builder.components.ffn import FFN, divided_inside, inner_width
from builder.finding import Finding
from builder.model.activations import ACTIVATIONS, Activation, gated
from builder.model.context import Context
from builder.model.linear import Linear
from builder.registry import register


@register("ffn", "glu")
class GLU(FFN):
    """scale (act(gate_scale x W_gate) * (x W_up + offset)) W_down; 3 d d_ff weights (chapter 3.5; Shazeer 2020)."""

    class Config(BaseConfig):
        """`d_ff` is the inner width; about 8/3 d gives the weights of an mlp with 4 d.

        limit         what the gate is cut at from above, before its activation, and the rest on both sides (gpt-oss)
        offset        added to x W_up
        gate_scale    of what the activation is taken of, bias included (Falcon-H1)
        scale         of what comes out, bias included
        """

        name: str = "glu"
        d_ff: PositiveInt
        activation: Activation = "silu"
        bias: bool = False
        limit: PositiveFloat | None = None
        offset: float = 0.0
        gate_scale: PositiveFloat = 1.0
        scale: PositiveFloat = 1.0

        def grows(self) -> Iterable[str]:
            return ("d_ff",)

        def shrink(self, site: Site) -> Self:
            return self.model_copy(update={"d_ff": 16})

    def __init__(self, config: GLU.Config, site: Site):
        super().__init__()
        self.gate = Linear(site.d_model, config.d_ff, bias=config.bias)
        self.up = Linear(site.d_model, config.d_ff, bias=config.bias)
        self.down = Linear(config.d_ff, site.d_model, bias=config.bias, role="residual")
        self.activation = ACTIVATIONS[config.activation]
        self.limit, self.offset = config.limit, config.offset
        self.gate_scale, self.scale = config.gate_scale, config.scale

    def divide(self, ranks: int) -> dict[str, str]:
        return divided_inside(self, ("gate", "up"), "down", self.down.in_features, ranks)

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        if torch.is_grad_enabled():
            hidden = gated(self.activation, self._gate(x), self._up(x))  # (B, T, F)
        else:  # what the activation read has left its memory to what comes up
            hidden = self.activation(self._gate(x)).mul_(self._up(x))
        ctx.record("ffn hidden", "B T F", *hidden.shape)
        return _times(self.down(hidden), self.scale)

    def _gate(self, x: Tensor) -> Tensor:
        gate = _times(self.gate(x), self.gate_scale)
        return gate if self.limit is None else gate.clamp(max=self.limit)

    def _up(self, x: Tensor) -> Tensor:
        up = self.up(x)
        up = up if self.limit is None else up.clamp(-self.limit, self.limit)
        return up + self.offset if self.offset else up

    @classmethod
    def check(cls, config: GLU.Config, site: Site) -> Iterable[Finding]:
        yield inner_width(config.d_ff, 3, config.activation, config.bias, site)


def _times(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1 else x * factor
