"""Linear warm-up, then the peak to the end."""

from __future__ import annotations

from builder.registry import register
from builder.training.schedule import Schedule, ScheduleConfig


@register("schedule", "constant")
class Constant(Schedule):
    """factor(s) = 1 for s >= w, the steps of warm-up: a run may go on as long as one likes."""

    class Config(ScheduleConfig):
        """The warm-up."""

        name: str = "constant"

    def after(self, step: int) -> float:
        return 1.0
