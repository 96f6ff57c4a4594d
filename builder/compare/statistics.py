"""What seeds say: a mean with its interval, and which of two means differ, corrected for how many are asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

LEVEL = 0.95
"""Of the intervals; and a difference is one where its corrected p is below what this leaves."""


@dataclass(frozen=True)
class Mean:
    """A mean over `n` seeds: Student's interval, None of one seed alone, where nothing is known of the spread."""

    mean: float
    low: float | None
    high: float | None
    n: int

    @property
    def half(self) -> float | None:
        """Half the width of the interval."""
        return None if self.high is None else self.high - self.mean


@dataclass(frozen=True)
class Pair:
    """Two of the rows, by their places: the difference of their means (first - second) with its interval, and p.

    p           of Welch's t-test, two-sided; adjusted by Holm over all pairs that were tested
    """

    first: int
    second: int
    difference: float
    low: float
    high: float
    p: float
    adjusted: float = math.nan

    @property
    def differs(self) -> bool:
        """Whether the two differ, at the level, after the correction."""
        return self.adjusted < 1 - LEVEL


def mean(values: Sequence[float]) -> Mean | None:
    """The mean of at least one value: mean +- t(n - 1) s / sqrt(n)."""
    from scipy.special import stdtrit

    n = len(values)
    if n == 0:
        return None
    middle = float(np.mean(values))
    if n == 1:
        return Mean(middle, None, None, 1)
    half = float(stdtrit(n - 1, (1 + LEVEL) / 2) * np.std(values, ddof=1) / math.sqrt(n))
    return Mean(middle, middle - half, middle + half, n)


def pairs(
    samples: Sequence[Sequence[float]],
    allowed: Sequence[bool] | None = None,
    fair: Callable[[int, int], bool] | None = None,
) -> list[Pair]:
    """Welch's t-test (1947) of every two of the samples that have two values or more and any spread, with Holm's
    correction (1979) over them all; `allowed` leaves samples out, and `fair` pairs of them."""
    from scipy.special import stdtr, stdtrit

    usable = [index for index, sample in enumerate(samples) if len(sample) > 1 and (allowed is None or allowed[index])]
    asked = [pair for pair in combinations(usable, 2) if fair is None or fair(*pair)]
    chosen = np.array(asked, dtype=int).reshape(-1, 2)
    means = np.array([np.mean(sample) if len(sample) else math.nan for sample in samples])
    counts = np.array([max(len(sample), 1) for sample in samples])
    errors = np.array([np.var(sample, ddof=1) if len(sample) > 1 else math.nan for sample in samples]) / counts
    one, other = chosen.T
    total = errors[one] + errors[other]
    keep = total > 0
    one, other, total = one[keep], other[keep], total[keep]
    freedom = total**2 / (errors[one] ** 2 / (counts[one] - 1) + errors[other] ** 2 / (counts[other] - 1))
    difference = means[one] - means[other]
    p = 2 * stdtr(freedom, -np.abs(difference) / np.sqrt(total))
    half = stdtrit(freedom, (1 + LEVEL) / 2) * np.sqrt(total)
    table = zip(one, other, difference, difference - half, difference + half, p, holm(p), strict=True)
    return [Pair(int(a), int(b), *map(float, rest)) for a, b, *rest in table]


def holm(p: Sequence[float] | np.ndarray) -> np.ndarray:
    """Holm's adjusted p: with p sorted, max over j <= i of min(1, (m - j) p_j), j from 0."""
    p = np.asarray(p, dtype=float)
    order = np.argsort(p, kind="stable")
    steps = np.minimum(1, (len(p) - np.arange(len(p))) * p[order])
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(steps) if len(p) else steps
    return adjusted
