"""RMSNorm: scale each vector by its root mean square."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import PositiveFloat
from torch import Tensor, nn

from builder.component import Config as BaseConfig
from builder.components.norm import Norm
from builder.registry import register


@register("norm", "rmsnorm")
class RMSNorm(Norm):
    """RMSNorm(x) = g * x / sqrt(mean(x^2) + eps) over the last axis (chapter 3.5; Zhang & Sennrich 2019)."""

    roles = {"weight": "scale"}

    class Config(BaseConfig):
        """`eps` is added to the mean square."""

        name: str = "rmsnorm"
        eps: PositiveFloat = 1e-6

    def __init__(self, config: RMSNorm.Config, width: int):
        super().__init__()
        self.eps = config.eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
