"""How the learning rate moves over the optimizer steps: the contract of a schedule, and the warm-up of all."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt

from builder.component import Component
from builder.component import Config as BaseConfig

Form = Literal["linear", "sqrt", "cosine"]
Floor = Annotated[float, Field(ge=0, le=1)]
"""The fraction of the peak that is left at the end of a run."""

_LEFT: dict[Form, Callable[[float], float]] = {
    "linear": lambda done: 1 - done,
    "sqrt": lambda done: 1 - math.sqrt(done),
    "cosine": lambda done: (1 + math.cos(math.pi * done)) / 2,
}


class ScheduleConfig(BaseConfig):
    """`warmup_steps` is w, the steps before the peak; a run of no more than w steps only rises."""

    warmup_steps: NonNegativeInt = 100


class Schedule(Component):
    """Warm-up over w steps, then what `after` says; built as `Schedule(config, steps)`, steps being the whole run, S.

    factor(s) = (s + 1) / (w + 1) for s < w, so that no step is one of rate 0, the first included; the peak, 1, is at
    s = w. What falls would reach its end at s = S, one past the last step.
    """

    Config = ScheduleConfig

    def __init__(self, config: Any, steps: int):
        self.config, self.steps = config, steps

    def factor(self, step: int) -> float:
        """What the peak learning rate is multiplied by at optimizer step `step`, the first being 0."""
        warmup = self.config.warmup_steps
        return (step + 1) / (warmup + 1) if step < warmup else self.after(step)

    def after(self, step: int) -> float:
        """The factor from step w on, where it is 1."""
        raise NotImplementedError

    @property
    def falls(self) -> bool:
        """Whether the last step of the run has a rate below the peak that came before it."""
        last = self.steps - 1
        return last > self.config.warmup_steps and self.factor(last) < 1

    def done(self, step: int) -> float:
        """The share of the steps from w to S that lies behind at `step`: 0 at the peak, 1 at the end."""
        warmup = self.config.warmup_steps
        return (step - warmup) / max(self.steps - warmup, 1)


def fall(form: Form, done: float, floor: float) -> float:
    """From 1 at `done` 0 to `floor` at 1, and level before and behind."""
    return floor + (1 - floor) * _LEFT[form](min(max(done, 0.0), 1.0))
