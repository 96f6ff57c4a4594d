"""Two rows of times that were measured in turns, compared: the median of their ratios, and how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median
from typing import Literal

CONFIDENCE = 0.95
"""How often, at least, the interval of a ratio holds the true median."""
Verdict = Literal["faster", "level", "slower"]


@dataclass(frozen=True)
class Ratio:
    """Ours / theirs, round by round: the median, and the interval [low, high] that holds it.

    `sure` is false where there are too few rounds for any interval; then low and high are the extremes.
    """

    median: float
    low: float
    high: float
    sure: bool

    @property
    def verdict(self) -> Verdict:
        """What may be claimed: `level` unless the whole interval lies on one side of 1."""
        if not self.sure or self.low <= 1 <= self.high:
            return "level"
        return "faster" if self.high < 1 else "slower"


def compare(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """The ratio of two rows of times, which must be of the same rounds.

    The interval is that of the sign test: of n values in order, the k-th from either end, with the largest k for which
    1 - 2 P(Binomial(n, 1/2) < k) >= 0.95. It assumes nothing of how times are distributed (Conover 1999, 3.2).
    """
    ratios = sorted(our / their for our, their in zip(ours, theirs, strict=True))
    k = _depth(len(ratios))
    low, high = (ratios[k - 1], ratios[-k]) if k else (ratios[0], ratios[-1])
    return Ratio(median(ratios), low, high, sure=k > 0)


def _depth(n: int) -> int:
    """The largest k whose interval holds the median with the confidence asked for; 0 when there is none."""
    tail, k = 0.0, 0
    while 2 * (tail := tail + comb(n, k) / 2**n) <= 1 - CONFIDENCE:
        k += 1
    return k
