"""What a run gives: the best and the last of a metric, each with the step that it came from."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from builder.experiments.metrics import better

from .run import Run, Series


class Value(NamedTuple):
    """A number and the step after which it was logged; NaN where what was logged there is no number."""

    value: float
    step: int


def is_higher_better(metric: str, goal: str | None = None) -> bool:
    """Whether more of a metric is better: as `goal` says, else by its name."""
    return (goal or better(metric)) == "max"


def best(points: Series, higher: bool) -> Value | None:
    """The best number, the first of equals; None where there is none: what is no number never wins."""
    numbers = [point for point in points if math.isfinite(point.value)]
    chosen = min(numbers, key=lambda point: -point.value if higher else point.value, default=None)
    return None if chosen is None else Value(chosen.value, chosen.step)


def last(points: Series) -> Value | None:
    """What was logged last, be it no number."""
    return Value(points[-1].value, points[-1].step) if points else None


def at(points: Series, step: int) -> float | None:
    """What was logged after `step`; None where nothing was, or no number."""
    found = next((point.value for point in points if point.step == step), math.nan)
    return found if math.isfinite(found) else None


def value(run: Run, metric: str, by: str, higher: bool) -> Value | None:
    """The number that stands for a run; None where the metric is missing, or is no number."""
    points = run.series.get(metric, [])
    found = best(points, higher) if by == "best" else last(points)
    return None if found is None or math.isnan(found.value) else found


def metrics(runs: Iterable[Run]) -> list[str]:
    """All metrics that any of the runs logged: those of validation first."""
    names = {name for run in runs for name in run.series}
    return sorted(names, key=lambda name: (not name.startswith("val/"), name))
