"""LayerNorm: centre and scale each vector by its own mean and variance."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import PositiveFloat
from torch import Tensor, nn

from builder.component import Config as BaseConfig
from builder.components.norm import Norm
from builder.registry import register


@register("norm", "layernorm")
class LayerNorm(Norm):
    """LN(x) = g * (x - mean(x)) / sqrt(var(x) + eps) + b over the last axis (chapter 3.5; Ba et al. 2016)."""

    roles = {"weight": "scale", "bias": "bias"}

    class Config(BaseConfig):
        """`eps` is added to the variance; `bias` keeps the shift b."""

        name: str = "layernorm"
        eps: PositiveFloat = 1e-5
        bias: bool = True

    def __init__(self, config: LayerNorm.Config, width: int):
        super().__init__()
        self.eps = config.eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if config.bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
