"""Every matrix and table from one normal distribution."""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from builder.component import Config as BaseConfig
from builder.components.init import Init
from builder.registry import register


@register("init", "normal")
class Normal(Init):
    """W ~ N(0, std^2), biases 0, scales 1, also where only what is added to 1 is kept (Radford et al. 2018)."""

    class Config(BaseConfig):
        """`std` is the standard deviation."""

        name: str = "normal"
        std: PositiveFloat = 0.02

    def draw(self, role: str, parameter: Tensor, generator: torch.Generator | None) -> None:
        constant = {"bias": 0.0, "scale": 1.0, "offset": 0.0}.get(role)
        if constant is not None:
            parameter.fill_(constant)
        else:
            nn.init.normal_(parameter, std=self.std(role), generator=generator)

    def std(self, role: str) -> float:
        """The standard deviation of a matrix of that role."""
        return self.config.std
