"""How what a part adds is weighed against the residual stream; plain addition needs none of these."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from builder.component import Component, Site
from builder.model.linear import linear_flops


class Residual(nn.Module, Component):
    """Joins the stream x with what a part adds, y; built as `Residual(config, site)`, once for each write of a layer.

    Parameters state their roles. `site.writes` says how many parts of the whole stack add to the stream.
    """

    def __init__(self, config: Any, site: Site):
        super().__init__()

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The stream after the write: x (B, T, D), y (B, T, D) -> (B, T, D)."""
        raise NotImplementedError

    def flops(self, tokens: int) -> int:
        """FLOPs of a forward pass over one sequence, two for each multiply-add; the checklist counts and compares."""
        return linear_flops(self, tokens)

    @classmethod
    def draw(cls, config: Any, site: Site, y: str) -> str:
        """The sum as the checklist draws it, e.g. `x + 0.5 y`, for what is called y."""
        return f"{cls.__name__}(x, {y})"
