"""Warm-up, a long stable part at the peak, and a short decay at the end."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from builder.registry import register
from builder.training.schedule import Floor, Form, Schedule, ScheduleConfig, fall


@register("schedule", "wsd")
class WSD(Schedule):
    """Warm-up, stable, decay (Hu et al. 2024, "MiniCPM"): a run that stands at the peak can be prolonged.

                w ______________________ S - D
                 /                      \\
                /                        \\___ f
               0                          S

    D = decay_share S steps decay, fewer where the warm-up leaves fewer. With d = (s - (S - D)) / D behind them,
    factor(s) = f + (1 - f) left, left = 1 - d (linear), 1 - sqrt(d) (sqrt), or (1 + cos(pi d)) / 2 (cosine).
    """

    class Config(ScheduleConfig):
        """The warm-up, and the decay; Hägele et al. (2024) find 1 - sqrt(d) over a fifth of the run the best of these.

        decay_share     of the whole run, warm-up included
        form            of the way down
        floor           f, the fraction of the peak that is left at the end
        """

        name: str = "wsd"
        decay_share: Annotated[float, Field(gt=0, le=1)] = 0.2
        form: Form = "sqrt"
        floor: Floor = 0.0

    def after(self, step: int) -> float:
        config, steps = self.config, self.steps
        length = min(config.decay_share * steps, max(steps - config.warmup_steps, 1))
        return fall(config.form, (step - (steps - length)) / length, config.floor)
