"""The norm stands after each part, on its branch, and none before it; the stream itself is never normalised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from builder.component import Site
from builder.components.block import Block, BlockConfig
from builder.model.context import Context
from builder.registry import register


@register("block", "sublayer_norm")
class SublayerNorm(Block):
    """x <- x + norm(f(x)) for each part f in turn (Liu et al. 2022, Swin Transformer V2; OLMo et al. 2024, OLMo 2)."""

    needs_final_norm = True

    class Config(BlockConfig):
        """Dropout, norm and residual of the block."""

        name: str = "sublayer_norm"

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        for name in self.parts:
            part, norm = getattr(self, name), getattr(self, f"{name}_norm")
            x = self.add(name, x, self.dropout(norm(part(part.ahead(x, ctx), ctx))))
        return x

    @classmethod
    def draw(cls, config: Any, site: Site, parts: Sequence[str]) -> str:
        return "; ".join(f"x = {cls.draw_sum(config, site, f'norm({part}(x))')}" for part in parts)
