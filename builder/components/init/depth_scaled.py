"""A normal distribution, narrower where a matrix writes to the residual stream, so that depth doesn't swell it."""

from __future__ import annotations

from pydantic import PositiveFloat

from builder.component import Config as BaseConfig
from builder.registry import register

from .normal import Normal


@register("init", "depth_scaled")
class DepthScaled(Normal):
    """As `normal`, with std / sqrt(n) for the n = 2 L matrices that add to the stream (Radford et al. 2019, GPT-2)."""

    class Config(BaseConfig):
        """`std` is the standard deviation before scaling."""

        name: str = "depth_scaled"
        std: PositiveFloat = 0.02

    def std(self, role: str) -> float:
        scaled = {"residual": max(self.site.writes, 1) ** -0.5}
        return self.config.std * scaled.get(role, 1.0)
