"""A gate read off the stream decides how much of what is added gets in."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from builder.component import Config as BaseConfig
from builder.component import Site
from builder.components.residual import Residual
from builder.finding import Finding, Status
from builder.model.linear import Linear
from builder.registry import register


@register("residual", "gated")
class Gated(Residual):
    """x + sigmoid(x W - b) * y, W (D, D): the output gate of GTrXL (Parisotto et al. 2019).

    b is learned: `bias` at first, less what `gate.bias` learns from 0 on. 2 D^2 FLOPs a token for each write.
    """

    class Config(BaseConfig):
        """`bias` keeps the gate shut at first: sigmoid(-bias) of y gets in."""

        name: str = "gated"
        bias: float = 2.0

    def __init__(self, config: Gated.Config, site: Site):
        super().__init__(config, site)
        self.bias = config.bias
        self.gate = Linear(site.d_model, site.d_model, bias=True)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + torch.sigmoid(self.gate(x) - self.bias) * y  # (B, T, D)

    @classmethod
    def draw(cls, config: Gated.Config, site: Site, y: str) -> str:
        return f"x + sigmoid(x W {'-' if config.bias >= 0 else '+'} {abs(config.bias):g}) * {y}"

    @classmethod
    def check(cls, config: Gated.Config, site: Site) -> Iterable[Finding]:
        open_at_first = torch.sigmoid(torch.tensor(-config.bias)).item()
        found = f"bias {config.bias:g}: {open_at_first:.2g} of each part gets in at first"
        yield Finding(Status.PASS, 4, "bias", found, f"a learned gate of {site.d_model**2:,} weights for each write")
