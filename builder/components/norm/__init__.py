"""Normalisation of one vector: the contract is `forward(x) -> x` over the last axis of any shape (..., D)."""

from __future__ import annotations

from torch import Tensor, nn

from builder.component import Component


class Norm(nn.Module, Component):
    """Built as `Norm(config, width)`; statistics are taken in float32 whatever the dtype of x."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalises x (..., D) over its last axis."""
        raise NotImplementedError
