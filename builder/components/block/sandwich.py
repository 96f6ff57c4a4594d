"""A norm stands before each part and another after it, both on the branch; the stream itself is never normalised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from builder.component import Site
from builder.components.block import Block, BlockConfig
from builder.model.context import Context
from builder.registry import register


@register("block", "sandwich")
class Sandwich(Block):
    """x <- x + norm'(f(norm(x))) for each part f in turn (Ding et al. 2021, "CogView"; Gemma 2)."""

    needs_final_norm = True

    class Config(BlockConfig):
        """Dropout, norm and residual of the block."""

        name: str = "sandwich"

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        for name in self.parts:
            part, norm, out_norm = (getattr(self, child) for child in (name, f"{name}_norm", f"{name}_out_norm"))
            x = self.add(name, x, self.dropout(out_norm(part(norm(part.ahead(x, ctx)), ctx))))
        return x

    @classmethod
    def norm_names(cls, config: Any, part: str) -> Sequence[str]:
        return (f"{part}_norm", f"{part}_out_norm")

    @classmethod
    def draw(cls, config: Any, site: Site, parts: Sequence[str]) -> str:
        return "; ".join(f"x = {cls.draw_sum(config, site, f'norm({part}(norm(x)))')}" for part in parts)
