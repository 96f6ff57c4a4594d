"""How a model knows order: the contract of a position scheme is three hooks, each a no-op unless the scheme uses it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from torch import Tensor, nn

from builder.component import Component, Site
from builder.finding import Finding, Status
from builder.model.bias import Bias
from builder.model.positions import Positions


class Position(nn.Module, Component):
    """Built as `Position(config, site)`, once per model and scheme, and shared by the layers that use it.

    `site.n_heads` is the number of query heads it serves, None when its mixers differ. A scheme with numbers per head
    sets `needs_heads` and makes them for `served_heads(config, site)`.

    The embedding calls `embed` of the model's scheme; every attention calls `rotate` and `bias` of its own, and asks
    nothing. What is derived from positions is made once a pass with `positions.once(key, make)`; the memo is shared
    with other schemes, so the key begins with what is this scheme's alone. Pads stand at position 0, and the documents
    of a packed row each start from 0: the mask hides what must not be seen, so a hook needs no mask of its own.
    A learned table states its role: `roles = {"weight": "embedding"}` for vectors, `"bias"` for added numbers.
    """

    needs_heads: ClassVar[bool] = False
    """Whether it is made for a number of heads; then all mixers that use it must have the same."""
    relative: ClassVar[bool] = True
    """Whether it tells distances alone, so that nothing changes when all positions move at once."""
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

    def bias(self, queries: Positions, keys: Positions) -> Bias | Tensor | None:
        """What is added to the scaled scores of the H = `site.n_heads` query heads; None: nothing.

        A tensor (B | 1, H, T, S) in any float dtype, or better a `Bias`, which kernels need not write out. In decode T
        is 1, and the S keys are those of the state and of this pass, not always in order: take `keys.ids` (B | 1, S).
        """
        return None

    @classmethod
    def misfit(cls, config: Any, d_head: int) -> str | None:
        """The rule that heads of width `d_head` break, or None."""
        return None

    @classmethod
    def told(cls, config: Any, site: Site) -> str:
        """The scheme in a few words, with what stretches it."""
        return config.name

    @classmethod
    def check(cls, config: Any, site: Site) -> Iterable[Finding]:
        """The verdict on training at `site.train_length` and deploying at `site.deploy_length` (section 3)."""
        yield Finding(Status.UNKNOWN, 3, "name", config.name, f"{cls.__name__} states no verdict on longer sequences")


def reach(site: Site) -> str:
    """How the two lengths of a site read in a finding."""
    return f"trained at {site.train_length}, deployed at {site.deploy_length}"


def served_heads(config: Any, site: Site) -> int:
    """The query heads that a scheme is made for; raises ValueError when the mixers that use it don't agree."""
    if site.n_heads is None:
        raise ValueError(f"{config.name}: the mixers that use it differ in n_heads; give each a position of its own")
    return site.n_heads
