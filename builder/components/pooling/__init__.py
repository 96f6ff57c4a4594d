"""How the positions of a row become one vector."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from builder.component import Component, Site
from builder.model.linear import linear_flops


class Pooling(nn.Module, Component):
    """Built as `Pooling(config, site)`; padding never counts, wherever it stands. A row of padding gives zeros."""

    def __init__(self, config: Any, site: Site):
        super().__init__()

    def forward(self, hidden: Tensor, real: Tensor | None) -> Tensor:
        """hidden (B, T, D), real (B, T) bool or None for all -> (B, D)."""
        raise NotImplementedError

    def flops(self, tokens: int) -> int:
        """FLOPs over one sequence, two for each multiply-add."""
        return linear_flops(self, tokens)
