"""The lines of a comparison's pictures: a metric along an axis, of each run and of the mean over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .comparison import Comparison, Row
from .run import AXES, Series

POINTS = 400
"""A line has no more points than this, its ends and its best among them: a picture can't show more."""

BANDS = 15
"""More configurations than this are drawn without their bands, which would hide each other."""

AXIS_NAMES = dict(zip(AXES, ("optimizer steps", "training tokens", "training FLOPs"), strict=True))


@dataclass(frozen=True)
class Line:
    """One line of a picture: x along an axis, y the mean over seeds, `low` and `high` the least and most of them."""

    label: str
    place: int
    x: list[float]
    y: list[float]
    low: list[float]
    high: list[float]
    seeds: int
    dashed: bool


def lines(comparison: Comparison, axis: str) -> list[Line]:
    """A line for each row that has anything to show, at the steps where all its seeds have a number."""
    found = (_line(place, row, comparison.metric, axis, comparison.higher) for place, row in enumerate(comparison.rows))
    return [line for line in found if line is not None]


def _line(place: int, row: Row, metric: str, axis: str, higher: bool) -> Line | None:
    series = [points for run in row.used if (points := _clean(run.series.get(metric, []), axis))]
    if not series:
        return None
    by_step = [{point.step: point for point in points} for points in series]
    steps = sorted(set(by_step[0]).intersection(*by_step[1:]))
    if not steps:
        return None
    steps = _thinned(steps, [by_step[0][step].value for step in steps], higher)
    columns = [[points[step].value for points in by_step] for step in steps]
    x = [float(getattr(by_step[0][step], axis)) for step in steps]
    means = [math.fsum(column) / len(column) for column in columns]
    return Line(
        row.configuration.label, place, x, means, list(map(min, columns)), list(map(max, columns)),
        len(series), dashed=not row.whole,
    )  # fmt: skip


def _clean(points: Series, axis: str) -> Series:
    return [point for point in points if math.isfinite(point.value) and getattr(point, axis) is not None]


def _thinned(steps: Sequence[int], values: Sequence[float], higher: bool) -> list[int]:
    if len(steps) <= POINTS:
        return list(steps)
    top = (max if higher else min)(range(len(steps)), key=values.__getitem__)
    chosen = {round(place * (len(steps) - 1) / (POINTS - 1)) for place in range(POINTS)} | {top}
    return [steps[place] for place in sorted(chosen)]


def window(found: Iterable[Line]) -> tuple[float, float] | None:
    """What of the values is worth seeing: a first value far above all that follows is left out."""
    ends = [(min(line.low), max(line.high[len(line.high) // 10 :])) for line in found]
    if not ends:
        return None
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - room, high + room
