"""Normalisation of one vector: the contract is `forward(x) -> x` over the last axis of any shape (..., D)."""

from __future__ import annotations

from torch import Tensor, nn

from builder.component import Component


class Norm(nn.Module, Component):
    """Built as `Norm(config, width)`, which calls `super().__init__()`; statistics are taken in float32 whatever x is.

    Its parameters state their roles, `roles = {"weight": "scale"}` (see components/init).
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalises x (..., D) over its last axis."""
        raise NotImplementedError
