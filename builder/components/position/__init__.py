"""How a model knows order: the contract of a position scheme is three hooks, each a no-op unless the scheme uses it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from builder.component import Component, Site
from builder.finding import Finding, Status
from builder.model.positions import Positions


class Position(nn.Module, Component):
    """Built as `Position(config, site)`, once per stack and scheme; attention calls all hooks and asks nothing."""

    limit: int | None = None
    """The first position that doesn't exist for this scheme; None when there is no end."""

    def __init__(self, config: Any, site: Site):
        super().__init__()

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        """The embedded tokens x (B, T, D), with position written into them."""
        return x

    def rotate(self, x: Tensor, positions: Positions) -> Tensor:
        """Queries or keys x (B, T, H, E), turned by their positions."""
        return x

    def bias(self, queries: Positions, keys: Positions) -> Tensor | None:
        """What is added to the scaled scores, (B | 1, H, T, S); None for nothing."""
        return None

    @classmethod
    def misfit(cls, config: Any, d_head: int) -> str | None:
        """The rule that heads of width `d_head` break, or None."""
        return None

    @classmethod
    def check(cls, config: Any, site: Site) -> Iterable[Finding]:
        """The verdict on training at `site.train_length` and deploying at `site.deploy_length` (section 3)."""
        yield Finding(Status.UNKNOWN, 3, "name", config.name, f"{cls.__name__} states no verdict on longer sequences")


def reach(site: Site) -> str:
    """How the two lengths of a site read in a finding."""
    return f"trained at {site.train_length}, deployed at {site.deploy_length}"
