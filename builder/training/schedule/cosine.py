"""Linear warm-up, then half a cosine down to a floor."""

from __future__ import annotations

from builder.registry import register
from builder.training.schedule import Floor, Schedule, ScheduleConfig, fall


@register("schedule", "cosine")
class Cosine(Schedule):
    """Warm-up over w steps, then a cosine over the rest of the S steps down to f (Loshchilov & Hutter 2017).

    factor(s) = f + (1 - f) (1 + cos(pi (s - w) / (S - w))) / 2 for s >= w
    """

    class Config(ScheduleConfig):
        """The warm-up, and `floor`: f, the fraction of the peak that is left at the end."""

        name: str = "cosine"
        floor: Floor = 0.1

    def after(self, step: int) -> float:
        return fall("cosine", self.done(step), self.config.floor)
