"""Each channel of what is added has a learned factor, which starts near zero."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from pydantic import NonNegativeFloat
from torch import Tensor, nn

from builder.component import Config as BaseConfig
from builder.component import Site
from builder.components.residual import Residual
from builder.finding import Finding, Status
from builder.registry import register


@register("residual", "layer_scale")
class LayerScale(Residual):
    """x + g * y, g (D,) learned, every entry `initial` at first (Touvron et al. 2021, "Going deeper", CaiT)."""

    roles = {"weight": "own"}

    class Config(BaseConfig):
        """`initial` is what every factor starts from; deeper stacks want less."""

        name: str = "layer_scale"
        initial: NonNegativeFloat = 1e-4

    def __init__(self, config: LayerScale.Config, site: Site):
        super().__init__(config, site)
        self.initial = config.initial
        self.weight = nn.Parameter(torch.full((site.d_model,), config.initial))  # (D,)

    def reset(self, generator: torch.Generator | None) -> None:
        """Sets every factor to its first value."""
        self.weight.fill_(self.initial)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + self.weight * y  # (B, T, D)

    @classmethod
    def draw(cls, config: LayerScale.Config, site: Site, y: str) -> str:
        return f"x + g * {y}"

    @classmethod
    def check(cls, config: LayerScale.Config, site: Site) -> Iterable[Finding]:
        found = f"g from {config.initial:g}, {site.d_model} for each write"
        yield Finding(Status.PASS, 4, "initial", found, "learned, not decayed; the stack starts near the identity")
