"""The norm stands on the stream itself, after each addition, as in the original Transformer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from builder.component import Site
from builder.components.block import Block, BlockConfig
from builder.finding import Finding, Status
from builder.model.context import Context
from builder.registry import register

DEEP = 12
"""Layers that plain post-norm is known to train; stacks of 18 encoder and 18 decoder layers diverged in Wang et al."""


@register("block", "post_norm")
class PostNorm(Block):
    """x <- norm(x + f(x)) for each part f in turn (chapter 3.5; Vaswani et al. 2017).

    Its gradients are largest in the last layers at first, the more so the deeper it is, and it needs a warm-up
    (Xiong et al. 2020); a weighted stream lifts that (Wang et al. 2022, "DeepNet").
    """

    needs_final_norm = False

    class Config(BlockConfig):
        """Dropout, norm and residual of the block."""

        name: str = "post_norm"

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        for name in self.parts:
            part, norm = getattr(self, name), getattr(self, f"{name}_norm")
            x = norm(self.add(name, x, self.dropout(part(part.ahead(x, ctx), ctx))))
        return x

    @classmethod
    def draw(cls, config: Any, site: Site, parts: Sequence[str]) -> str:
        return "; ".join(f"x = norm({cls.draw_sum(config, site, f'{part}(x)')})" for part in parts)

    @classmethod
    def check(cls, config: Any, site: Site) -> Iterable[Finding]:
        yield from super().check(config, site)
        if config.residual is None and site.n_layers > DEEP:
            rule = (
                f"plain post-norm is hard to train deeper than {DEEP} layers: its last layers' gradients are too large"
            )
            alpha = (2 * site.n_layers) ** 0.25  # of a decoder alone
            fix = f"model/block=pre_norm, or residual={{name: constant, stream: {alpha:.3g}}} (DeepNorm)"
            yield Finding(Status.WARN, 4, "residual", f"plain addition in {site.n_layers} layers", rule, fix)
