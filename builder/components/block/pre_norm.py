"""The norm stands before each part, on its branch; the stream itself is never normalised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from builder.component import Site
from builder.components.block import Block, BlockConfig
from builder.model.context import Context
from builder.registry import register


@register("block", "pre_norm")
class PreNorm(Block):
    """x <- x + f(norm(x)) for each part f in turn (chapter 3.5; Xiong et al. 2020)."""

    needs_final_norm = True

    class Config(BlockConfig):
        """Dropout, norm and residual of the block."""

        name: str = "pre_norm"

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        for name in self.parts:
            part, norm = getattr(self, name), getattr(self, f"{name}_norm")
            x = self.add(name, x, self.dropout(part(norm(x), ctx)))
        return x

    @classmethod
    def draw(cls, config: Any, site: Site, parts: Sequence[str]) -> str:
        return "; ".join(f"x = {cls.draw_sum(config, site, f'{part}(norm(x))')}" for part in parts)
