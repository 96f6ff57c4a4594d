"""Linear warm-up, then a fall with the root of the step."""

from __future__ import annotations

import math

from builder.registry import register
from builder.training.schedule import Schedule, ScheduleConfig


@register("schedule", "inverse_sqrt")
class InverseSqrt(Schedule):
    """factor(s) = sqrt((w + 1) / (s + 1)) for s >= w: where a run ends doesn't matter (Vaswani et al. 2017, 5.3).

    Theirs is min(n^-1/2, n W^-3/2) with n = s + 1 and W = w + 1, here divided by its peak W^-1/2.
    """

    class Config(ScheduleConfig):
        """The warm-up, which sets how fast the rate falls too: it has halved after 4 w steps."""

        name: str = "inverse_sqrt"

    def after(self, step: int) -> float:
        return math.sqrt((self.config.warmup_steps + 1) / (step + 1))
