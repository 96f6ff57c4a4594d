"""The last real position of a row."""

from __future__ import annotations

import torch
from torch import Tensor

from builder.component import Config as BaseConfig
from builder.components.pooling import Pooling
from builder.registry import register


@register("pooling", "last")
class Last(Pooling):
    """p = h_n, n the last real token: where a causal model has read all of the row (Radford et al. 2018)."""

    class Config(BaseConfig):
        """No knobs."""

        name: str = "last"

    def forward(self, hidden: Tensor, real: Tensor | None) -> Tensor:
        if real is None:
            return hidden[:, -1]  # (B, D)
        place = real.shape[1] - 1 - real.flip(1).int().argmax(1)  # (B,)
        found = hidden[torch.arange(len(hidden), device=hidden.device), place]  # (B, D)
        return torch.where(real.any(1)[:, None], found, found.new_zeros(()))
