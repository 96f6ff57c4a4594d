"""The norm stands before each part, on its branch; the stream itself is never normalised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from builder.component import Site
from builder.components.block import Block, BlockConfig
from builder.model.context import Context
from builder.registry import register


@register("block", "pre_norm")
class PreNorm(Block):
    """x <- x + f(norm(x)) for each part f in turn (chapter 3.5; Xiong et al. 2020).

    Without `first_norm` the first part of the first layer reads x itself, which the embedding has normed already
    (Warner et al. 2024, "ModernBERT").
    """

    needs_final_norm = True

    class Config(BlockConfig):
        """Dropout, norm and residual of the block; `first_norm`, whether the first part of a model has a norm."""

        name: str = "pre_norm"
        first_norm: bool = True

    def __init__(self, config: PreNorm.Config, site: Site, parts: Any):
        super().__init__(config, site, parts)
        if _bare(config, site):
            self.add_module(f"{self.parts[0]}_norm", nn.Identity())

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        for name in self.parts:
            part, norm = getattr(self, name), getattr(self, f"{name}_norm")
            x = self.add(name, x, self.dropout(part(norm(part.ahead(x, ctx)), ctx)))
        return x

    @classmethod
    def draw(cls, config: Any, site: Site, parts: Sequence[str]) -> str:
        inner = ["x" if not index and _bare(config, site) else "norm(x)" for index in range(len(parts))]
        drawn = (f"{part}({read})" for part, read in zip(parts, inner, strict=True))
        return "; ".join(f"x = {cls.draw_sum(config, site, added)}" for added in drawn)


def _bare(config: PreNorm.Config, site: Site) -> bool:
    """Whether the first part of a layer has no norm."""
    return site.layer == 0 and not config.first_norm
