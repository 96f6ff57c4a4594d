"""The scaling of Llama 3.1: long waves are interpolated, short ones kept, and those between are blended."""

from __future__ import annotations

import math
from typing import Self

import torch
from pydantic import PositiveFloat, model_validator
from torch import Tensor

from builder.component import refuse
from builder.components.scaling import Scaling, ScalingConfig, unscaled
from builder.registry import register


@register("scaling", "llama3")
class Llama3(Scaling):
    """w_i ((1 - s_i) / factor + s_i), s_i = (L / wavelength_i - low) / (high - low) within [0, 1].

    A wave of more than L / low positions is interpolated, one of less than L / high kept; L is the original length
    (Grattafiori et al. 2024).
    """

    class Config(ScalingConfig):
        """`low_freq_factor` and `high_freq_factor`: waves in the original length where blending begins and ends."""

        name: str = "llama3"
        low_freq_factor: PositiveFloat = 1.0
        high_freq_factor: PositiveFloat = 4.0

        @model_validator(mode="after")
        def _high_is_above_low(self) -> Self:
            if self.high_freq_factor <= self.low_freq_factor:
                rule = f"must be above low_freq_factor={self.low_freq_factor:g}"
                refuse(
                    "high_freq_factor", self.high_freq_factor, rule, f"high_freq_factor={4 * self.low_freq_factor:g}"
                )
            return self

    def frequencies(self, theta: float, width: int, reach: int | Tensor, device: torch.device) -> Tensor:
        low, high = self.config.low_freq_factor, self.config.high_freq_factor
        plain = unscaled(theta, width, device)
        waves = self.original * plain / (2 * math.pi)  # (r/2,), in the original length
        kept = ((waves - low) / (high - low)).clamp(0, 1)
        return (1 - kept) * plain / self.config.factor + kept * plain
