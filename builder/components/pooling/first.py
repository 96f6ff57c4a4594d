"""The first real position of a row."""

from __future__ import annotations

import torch
from torch import Tensor

from builder.component import Config as BaseConfig
from builder.components.pooling import Pooling
from builder.registry import register


@register("pooling", "first")
class First(Pooling):
    """p = h_1, the place of a token made for it, such as [CLS] (Devlin et al. 2019)."""

    class Config(BaseConfig):
        """No knobs."""

        name: str = "first"

    def forward(self, hidden: Tensor, real: Tensor | None) -> Tensor:
        if real is None:
            return hidden[:, 0]  # (B, D)
        place = real.int().argmax(1)  # (B,), of several equal ones the first
        found = hidden[torch.arange(len(hidden), device=hidden.device), place]  # (B, D)
        return torch.where(real.any(1)[:, None], found, found.new_zeros(()))
