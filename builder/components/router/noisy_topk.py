"""Each token goes to the k experts that score highest with noise, whose strength is learned."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from builder.components.router import RouterConfig, exact_linear
from builder.components.router.topk import Score, TopK, Weights
from builder.registry import register


@register("router", "noisy_topk")
class NoisyTopK(TopK):
    """H(x) = x W_g + N(0, 1) softplus(x W_noise), weights = softmax over the k largest of H(x) (Shazeer et al. 2017).

    The noise is drawn in training alone, once for each token and expert.
    """

    class Config(RouterConfig):
        """The knobs of every router."""

        name: str = "noisy_topk"

    def __init__(self, config: Any, d_model: int, n_experts: int, top_k: int, learns: bool = False):
        super().__init__(config, d_model, n_experts, top_k, learns)
        self.noise = nn.Parameter(torch.empty(n_experts, d_model))
        self.roles = self.roles | {"noise": "readout"}

    @classmethod
    def scored_by(cls, config: Any) -> tuple[Score, Weights]:
        return "softmax", "selected"

    def logits(self, x: Tensor) -> Tensor:
        x = self.jittered(x)
        clean = exact_linear(x, self.weight, self.bias)
        if not self.training:
            return clean
        return clean + torch.randn_like(clean) * F.softplus(exact_linear(x, self.noise))
