"""Linear warm-up, then a line down to a floor."""

from __future__ import annotations

from builder.registry import register
from builder.training.schedule import Floor, Schedule, ScheduleConfig, fall


@register("schedule", "linear")
class Linear(Schedule):
    """Warm-up over w steps, then a line over the rest of the S steps down to f (0: Bergsma et al. 2025).

    factor(s) = f + (1 - f) (S - s) / (S - w) for s >= w
    """

    class Config(ScheduleConfig):
        """The warm-up, and `floor`: f, the fraction of the peak that is left at the end."""

        name: str = "linear"
        floor: Floor = 0.0

    def after(self, step: int) -> float:
        return fall("linear", self.done(step), self.config.floor)
