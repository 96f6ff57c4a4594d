"""Linear warm-up, then half a cosine down to a floor."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field, NonNegativeInt

from builder.component import Config as BaseConfig
from builder.registry import register
from builder.training.schedule import Schedule


@register("schedule", "cosine")
class Cosine(Schedule):
    """Warm-up over w steps, then a cosine over the rest of the S steps down to f (Loshchilov & Hutter 2017).

    factor(s) = (s + 1) / (w + 1) for s < w, else f + (1 - f) (1 + cos(pi (s - w) / (S - w))) / 2
    """

    class Config(BaseConfig):
        """`warmup_steps` is w; `floor` is f, the fraction of the peak that is left at the end."""

        name: str = "cosine"
        warmup_steps: NonNegativeInt = 100
        floor: Annotated[float, Field(ge=0, le=1)] = 0.1

    def factor(self, step: int) -> float:
        warmup, floor = self.config.warmup_steps, self.config.floor
        if step < warmup:
            return (step + 1) / (warmup + 1)
        done = min((step - warmup) / max(self.steps - warmup, 1), 1.0)
        return floor + (1 - floor) * (1 + math.cos(math.pi * done)) / 2
