"""Who is on the front: the configurations that no other one beats in cost without being worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .comparison import Comparison
from .speed import Speeds

COSTS: Mapping[str, str] = {
    "params": "parameters",
    "flops_per_token": "forward FLOPs per token",
    "state_bytes_per_token": "state bytes per token",
}
"""The costs that every run knows, in the ledger's words."""


@dataclass(frozen=True)
class Spot:
    """One row in a plane of cost and value; `low` and `high` are its interval, where it has one."""

    place: int
    label: str
    cost: float
    value: float
    low: float | None
    high: float | None
    on_front: bool


@dataclass(frozen=True)
class Plane:
    """The rows over one cost: its name, its axis in words, and whether more of it is better."""

    name: str
    axis: str
    more: bool
    spots: tuple[Spot, ...]

    @property
    def front(self) -> list[Spot]:
        """The spots on the front, by their cost."""
        return sorted((spot for spot in self.spots if spot.on_front), key=lambda spot: spot.cost)


def planes(comparison: Comparison, speeds: Speeds | None) -> list[Plane]:
    """A plane for each cost that two rows or more have."""
    whole = [(place, row) for place, row in enumerate(comparison.rows) if row.mean and (row.whole or comparison.forced)]
    found: list[tuple[str, str, bool, list[tuple[int, float | None]]]] = []
    for name, axis in COSTS.items():
        found.append((name, axis, False, [(place, row.cost(name)) for place, row in whole]))
    if speeds is not None:
        found.append(("decode", speeds.axis, True, [(p, speeds.of(row)) for p, row in whole]))
    made = []
    for name, axis, more, costs in found:
        known = [(place, float(cost)) for place, cost in costs if cost is not None]
        if len(known) > 1:
            made.append(_plane(comparison, name, axis, more, known))
    return made


def _plane(comparison: Comparison, name: str, axis: str, more: bool, known: list[tuple[int, float]]) -> Plane:
    rows = comparison.rows
    means = [row.mean for place, _ in known if (row := rows[place]).mean is not None]
    points = [(cost, middle.mean) for (_, cost), middle in zip(known, means, strict=True)]
    on_front = front(points, more, comparison.higher)
    spots = [
        Spot(place, rows[place].configuration.label, cost, middle.mean, middle.low, middle.high, kept)
        for (place, cost), middle, kept in zip(known, means, on_front, strict=True)
    ]
    return Plane(name, axis, more, tuple(spots))


def front(points: Sequence[tuple[float, float]], more: bool = False, higher: bool = False) -> list[bool]:
    """Of each (cost, value), whether no other point is as good in both and better in one; less is better, unless
    `more` says so of costs, or `higher` of values."""
    signed = [(-cost if more else cost, -value if higher else value) for cost, value in points]
    kept = [False] * len(signed)
    best = float("inf")  # the best value among all that cost less
    order = sorted(range(len(signed)), key=signed.__getitem__)
    for place in order:
        cost, value = signed[place]
        if value < best:
            best = value
            kept[place] = True
        elif value == best:  # beside an equal of the same cost
            kept[place] = any(signed[other] == signed[place] and kept[other] for other in order)
    return kept
