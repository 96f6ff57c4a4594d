"""A norm without parameters: every vector is brought to the same scale, and nothing is learned."""

from __future__ import annotations

import torch.nn.functional as F
from pydantic import PositiveFloat
from torch import Tensor

from builder.component import Config as BaseConfig
from builder.components.norm import Norm
from builder.registry import register


@register("norm", "nonparametric")
class Nonparametric(Norm):
    """N(x) = (x - mean(x)) / sqrt(var(x) + eps) over the last axis (Groeneveld et al. 2024, "OLMo").

    Without `center` N(x) = x / sqrt(mean(x^2) + eps): RMSNorm with the factor 1.
    """

    class Config(BaseConfig):
        """`eps` is added to the variance; `center` subtracts the mean."""

        name: str = "nonparametric"
        eps: PositiveFloat = 1e-5
        center: bool = True

    def __init__(self, config: Nonparametric.Config, width: int):
        super().__init__()
        self.eps, self.width = config.eps, (width,)
        self.normalise = F.layer_norm if config.center else F.rms_norm

    def forward(self, x: Tensor) -> Tensor:
        return self.normalise(x, self.width, eps=self.eps)
