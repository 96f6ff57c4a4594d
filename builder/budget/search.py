"""The whole numbers whose costs enclose a target, found in few looks at what a number costs."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, gcd

SCAN = 512
"""How far the next number that is allowed is looked for: heads of 128 need every 256th width, say."""

LEAP = 16
"""By how much a number may grow at once beyond the largest that was seen: a cost may rise faster than its key."""


def enclose(
    target: int, *, start: int, limit: int, valid: Callable[[int], bool], cost: Callable[[int], int]
) -> tuple[int | None, int | None]:
    """(low, high): the largest valid number that costs `target` at most, and the next one, which costs more.

    Both are the same where the target is met exactly. None: there is no such number from 1 to `limit`, or the cost
    doesn't grow. `cost` must not fall as numbers grow; it is asked about valid numbers only, first about one near
    `start`. Both functions are asked again about numbers that they were asked about before.
    """
    here = _up(valid, start, min(limit, start + SCAN)) or _down(valid, start - 1, max(1, start - SCAN))
    if here is None:
        return None, None
    step = (_up(valid, here + 1, min(limit, here + SCAN)) or here + 1) - here
    if cost(here) > target:
        low, high = _up(valid, 1, here - 1), here
        if low is None or cost(low) > target:
            return None, here if low is None else low
    else:
        low, high = _climb(target, here, step, limit, valid, cost)
        if high is None:
            return low, None
    return _narrow(target, low, high, step, valid, cost)


def _climb(
    target: int, low: int, step: int, limit: int, valid: Callable[[int], bool], cost: Callable[[int], int]
) -> tuple[int, int | None]:
    """Numbers on both sides of the target, `low` and what lies above being on its lower side; None: nothing costs more.

    Each next number is where the line through the last two meets the target.
    """
    wanted = low + step
    while True:
        wanted = min(wanted, limit)
        after = _up(valid, wanted, min(limit, wanted + SCAN)) or _down(valid, wanted - 1, low + 1)
        if after is None or cost(after) <= cost(low):
            return low, None
        if cost(after) > target:
            return low, after
        slope = (cost(after) - cost(low)) / (after - low)
        needed = ceil((target - cost(after)) / slope / step) * step
        wanted, low = min(after + max(step, needed), LEAP * after), after


def _narrow(
    target: int, low: int, high: int, step: int, valid: Callable[[int], bool], cost: Callable[[int], int]
) -> tuple[int, int]:
    """The two neighbours among valid numbers around the target, from two numbers around it."""
    by_line = True
    while cost(low) < target:
        share = (target - cost(low)) / (cost(high) - cost(low)) if by_line else 0.5
        step = gcd(step, high - low)
        guess = low + max(1, int(share * (high - low) / step)) * step  # valid numbers often lie evenly
        between = _nearest(valid, min(guess, high - 1), low + 1, high - 1)
        if between is None:
            return low, high
        by_line = not by_line  # a line alone creeps along a curve from one side
        low, high = (between, high) if cost(between) <= target else (low, between)
    return low, low


def _up(valid: Callable[[int], bool], start: int, end: int) -> int | None:
    """The first valid number from `start` to `end`."""
    return next(filter(valid, range(start, end + 1)), None)


def _down(valid: Callable[[int], bool], start: int, end: int) -> int | None:
    """The first valid number from `start` down to `end`."""
    return next(filter(valid, range(start, end - 1, -1)), None)


def _nearest(valid: Callable[[int], bool], middle: int, first: int, last: int) -> int | None:
    """The valid number from `first` to `last` that is nearest to `middle`."""
    for far in range(max(middle - first, last - middle, -1) + 1):
        for number in (middle - far, middle + far):
            if first <= number <= last and valid(number):
                return number
    return None
