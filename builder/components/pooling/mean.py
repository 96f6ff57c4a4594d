"""The mean over the real positions of a row."""

from __future__ import annotations

from torch import Tensor

from builder.component import Config as BaseConfig
from builder.components.pooling import Pooling
from builder.registry import register


@register("pooling", "mean")
class Mean(Pooling):
    """p = sum_t h_t / number of real tokens: every token weighs the same (the RNN sentence encoding of the notes)."""

    class Config(BaseConfig):
        """No knobs."""

        name: str = "mean"

    def forward(self, hidden: Tensor, real: Tensor | None) -> Tensor:
        if real is None:
            return hidden.mean(1)  # (B, D)
        weights = real.to(hidden.dtype)[..., None]  # (B, T, 1)
        return (hidden * weights).sum(1) / weights.sum(1).clamp_min(1)  # (B, D)
