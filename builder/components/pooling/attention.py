"""A weighted mean over the real positions of a row, the weights read off the positions themselves."""

from __future__ import annotations

import torch
from torch import Tensor

from builder.component import Config as BaseConfig
from builder.component import Site
from builder.components.pooling import Pooling
from builder.model.linear import Linear
from builder.registry import register


@register("pooling", "attention")
class Attention(Pooling):
    """p = sum_t a_t h_t, a = softmax_t(u . tanh(W h_t + b)): a mean that depends on the data (Yang et al. 2016).

    Masked before the softmax, with its maximum taken off (chapter 3.2): a row of padding gives zeros.
    """

    class Config(BaseConfig):
        """No knobs."""

        name: str = "attention"

    def __init__(self, config: Attention.Config, site: Site):
        super().__init__(config, site)
        self.key = Linear(site.d_model, site.d_model, bias=True)
        self.query = Linear(site.d_model, 1, role="readout")

    def forward(self, hidden: Tensor, real: Tensor | None) -> Tensor:
        return (self.weights(hidden, real)[:, None] @ hidden)[:, 0]  # (B, D)

    def weights(self, hidden: Tensor, real: Tensor | None) -> Tensor:
        """What each position counts for, (B, T): hidden (B, T, D), real (B, T) bool or None for all."""
        scores = self.query(torch.tanh(self.key(hidden)))[..., 0]  # (B, T)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if real is not None:
            scores = scores.masked_fill(~real, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)
        return (weights if real is None else weights * real).to(hidden.dtype)

    def flops(self, tokens: int) -> int:
        return super().flops(tokens) + 2 * tokens * self.key.in_features  # the weighted sum
