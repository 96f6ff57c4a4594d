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
    """RMSNorm(x) = g * x / sqrt(mean(x^2) + eps) over the last axis (chapter 3.5; Zhang & Sennrich 2019).

    With `unit_offset` g = 1 + w and w starts from 0 (Gemma Team 2024, "Gemma"): then a bfloat16 w keeps its precision
    near g = 1. In a low dtype the product with g is rounded once, as in Gemma; Llama rounds x / rms before it too.
    """

    class Config(BaseConfig):
        """`eps` is added to the mean square; `unit_offset` learns g less 1."""

        name: str = "rmsnorm"
        eps: PositiveFloat = 1e-6
        unit_offset: bool = False

    def __init__(self, config: RMSNorm.Config, width: int):
        super().__init__()
        self.eps, self.unit_offset = config.eps, config.unit_offset
        self.roles = {"weight": "offset" if config.unit_offset else "scale"}
        self.weight = nn.Parameter(torch.zeros(width) if config.unit_offset else torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        if not self.unit_offset:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        wide = torch.promote_types(x.dtype, torch.float32)  # in bfloat16, 1 + w would lose what w holds
        return F.rms_norm(x.to(wide), self.weight.shape, 1 + self.weight.to(wide), self.eps).to(x.dtype)
