"""Measurements in turns: A B, B A, A B ..., so that whatever else the machine does falls on all contenders alike."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Measure = Callable[[], float]
"""Does its work once, and returns the seconds that count."""


@dataclass(frozen=True)
class Samples:
    """Seconds a repeat took, for each contender one number a round; each is the mean of `repeats`."""

    seconds: dict[str, list[float]]
    repeats: int


def in_turns(
    measures: Mapping[str, Measure], *, rounds: int, warmup: int, seconds: float, each: Callable[[], object]
) -> Samples:
    """Samples of every measure, in an order that alternates; `each` is called after every measurement, warm-up too.

    A measurement repeats until about `seconds` have passed, by what the slowest took in the last round of warm-up;
    all contenders repeat as often, in every round.
    """
    names = list(measures)
    took: dict[str, float] = {}
    for _ in range(warmup):
        for name in names:
            start = time.perf_counter()
            measures[name]()
            took[name] = time.perf_counter() - start  # the whole of it, also where a part is what counts
            each()
    repeats = max(1, math.ceil(seconds / max(took.values())))
    samples: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            samples[name].append(sum(measures[name]() for _ in range(repeats)) / repeats)
            each()
    return Samples(samples, repeats)
