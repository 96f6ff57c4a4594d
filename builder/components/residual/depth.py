"""What is added shrinks with the depth of the stack, so that the stream doesn't grow with it."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import PositiveFloat
from torch import Tensor

from builder.component import Config as BaseConfig
from builder.component import Site
from builder.components.residual import Residual
from builder.finding import Finding, Status
from builder.registry import register


@register("residual", "depth")
class Depth(Residual):
    """x + y n^-power, n the parts that add to the stream, 2 L in a Transformer (Hayou et al. 2021, "Stable ResNet").

    At power 1/2 the variances that n independent parts add sum to that of one.
    """

    class Config(BaseConfig):
        """`power` of the depth."""

        name: str = "depth"
        power: PositiveFloat = 0.5

    def __init__(self, config: Depth.Config, site: Site):
        super().__init__(config, site)
        self.factor = site.writes**-config.power

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + self.factor * y  # (B, T, D)

    @classmethod
    def draw(cls, config: Depth.Config, site: Site, y: str) -> str:
        return f"x + {site.writes}^-{config.power:g} {y}"

    @classmethod
    def check(cls, config: Depth.Config, site: Site) -> Iterable[Finding]:
        found = f"n {site.writes}, each part times {site.writes**-config.power:.3g}"
        rule = f"n^-{config.power:g}, n the parts that add to the stream"
        yield Finding(Status.PASS, 4, "power", found, rule)
