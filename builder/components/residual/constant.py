"""Two constants weigh the stream and what is added to it."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import NonNegativeFloat
from torch import Tensor

from builder.component import Config as BaseConfig
from builder.component import Site
from builder.components.residual import Residual
from builder.finding import Finding, Status
from builder.registry import register


@register("residual", "constant")
class Constant(Residual):
    """s x + b y: b is Granite's residual multiplier; s DeepNorm's alpha, with post_norm (Wang et al. 2022, DeepNet)."""

    class Config(BaseConfig):
        """`branch` is b, the weight of what a part adds; `stream` is s, that of what was there."""

        name: str = "constant"
        branch: NonNegativeFloat = 1.0
        stream: NonNegativeFloat = 1.0

    def __init__(self, config: Constant.Config, site: Site):
        super().__init__(config, site)
        self.branch, self.stream = config.branch, config.stream

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.stream * x + self.branch * y  # (B, T, D)

    @classmethod
    def draw(cls, config: Constant.Config, site: Site, y: str) -> str:
        return f"{_times(config.stream)}x + {_times(config.branch)}{y}"

    @classmethod
    def check(cls, config: Constant.Config, site: Site) -> Iterable[Finding]:
        found = f"stream {config.stream:g}, branch {config.branch:g}"
        if config.branch == 0:
            rule = "what a part adds is multiplied by 0: no part of any layer is ever heard"
            yield Finding(Status.FAIL, 4, "branch", found, rule, "branch=1.0, or another factor above 0")
        elif config.stream == 0:
            rule = (
                "the stream is multiplied by 0: there is no residual connection, and depth is hard to train without one"
            )
            yield Finding(Status.WARN, 4, "stream", found, rule, "stream=1.0, or another factor above 0")
        else:
            yield Finding(Status.PASS, 4, "branch", found, "constants, the same in every layer")


def _times(factor: float) -> str:
    return "" if factor == 1 else f"{factor:.4g} "
