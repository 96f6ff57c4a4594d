"""All parts of a layer read the same stream and are added to it together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Literal

import torch
from torch import Tensor

from builder.component import Site
from builder.components.block import Block, BlockConfig
from builder.model.context import Context
from builder.registry import register


@register("block", "parallel")
class Parallel(Block):
    """x <- x + attention(norm(x)) + ffn(norm'(x)) (Wang & Komatsuzaki 2021, "GPT-J-6B"; Black et al. 2022).

    With one norm (GPT-J, PaLM) norm' is norm, and the layer's norm is called `norm`; with two (GPT-NeoX) they are
    called as in the other blocks. What weighs the sum against the stream is one too, `residual`.
    """

    needs_final_norm = True

    class Config(BlockConfig):
        """`norms` 1: the parts share one; 2: each has its own."""

        name: str = "parallel"
        norms: Literal[1, 2] = 1

    def __init__(self, config: Parallel.Config, site: Site, parts: Any):
        super().__init__(config, site, parts)
        self.normed = {name: self.norm_names(config, name)[0] for name in parts}

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        parts = {name: getattr(self, name) for name in self.parts}
        read = {name: part.ahead(x, ctx) for name, part in parts.items()}
        wanted = {(self.normed[name], read[name]): None for name in parts}  # parts may share a norm, and what it is of
        norms = {(norm, entry): getattr(self, norm)(entry) for norm, entry in wanted}
        added = [self.dropout(part(norms[self.normed[name], read[name]], ctx)) for name, part in parts.items()]
        return self.add(self.parts[0], x, reduce(torch.add, added))

    @classmethod
    def norm_names(cls, config: Any, part: str) -> Sequence[str]:
        return (f"{part}_norm",) if config.norms == 2 else ("norm",)

    @classmethod
    def residual_name(cls, part: str) -> str:
        return "residual"

    @classmethod
    def draw(cls, config: Any, site: Site, parts: Sequence[str]) -> str:
        prime = "'" if config.norms == 2 else ""
        added = (f"{part}(norm{prime if index else ''}(x))" for index, part in enumerate(parts))
        return f"x = {cls.draw_sum(config, site, *added)}"
