"""Position interpolation: every frequency is divided by one factor."""

from __future__ import annotations

import torch
from torch import Tensor

from builder.components.scaling import Scaling, ScalingConfig, unscaled
from builder.registry import register


@register("scaling", "linear")
class Linear(Scaling):
    """w_i / factor: position p is turned as p / factor was (Chen et al. 2023)."""

    class Config(ScalingConfig):
        """`factor` divides; `original_length` is what the checklist measures it by."""

        name: str = "linear"

    def frequencies(self, theta: float, width: int, reach: int | Tensor, device: torch.device) -> Tensor:
        return unscaled(theta, width, device) / self.config.factor
