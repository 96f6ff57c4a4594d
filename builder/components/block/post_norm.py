"""The norm stands on the stream itself, after each addition, as in the original Transformer."""

from __future__ import annotations

from torch import Tensor

from builder.components.block import Block, BlockConfig
from builder.model.context import Context
from builder.registry import register


@register("block", "post_norm")
class PostNorm(Block):
    """x <- norm(x + f(x)) for each part f in turn (Vaswani et al. 2017)."""

    needs_final_norm = False
    drawing = "norm(x + f(x))"

    class Config(BlockConfig):
        """Dropout and norm of the block."""

        name: str = "post_norm"

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        for name in self.parts:
            part, norm = getattr(self, name), getattr(self, f"{name}_norm")
            x = norm(x + self.dropout(part(x, ctx)))
        return x
