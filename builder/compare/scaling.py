"""The scaling law of a sweep: loss = E + A / N^a, fitted over sizes, with what a bootstrap leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .comparison import Comparison

SIZES, RATIO = 4, 2.0
"""The law has three unknowns: it takes so many sizes, the largest so many times the smallest."""

DRAWS = 400
"""Bootstrap samples."""

_SAME = ("tokens", "data", "validation", "targets")
"""What must be alike, so that sizes are all that differs."""

_EXPONENTS = np.geomspace(0.01, 3.0, 100)


@dataclass(frozen=True)
class Law:
    """loss = E + A / N^a, N parameters; each interval holds 95% of the fits to resampled residuals.

    note    what to be careful about; empty where there is nothing
    """

    floor: float
    scale: float
    exponent: float
    floor_interval: tuple[float, float]
    exponent_interval: tuple[float, float]
    sizes: tuple[float, ...]
    losses: tuple[float, ...]
    band: tuple[tuple[float, float, float, float], ...]
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The law in plain Python, without its band."""
        content = asdict(self)
        del content["band"]
        return content

    def at(self, size: float) -> float:
        """The loss that the law gives a size."""
        return self.floor + self.scale / size**self.exponent

    def __str__(self) -> str:
        low, high = self.exponent_interval
        return (
            f"loss = {self.floor:.4g} + {self.scale:.4g} / N^{self.exponent:.3g} over {len(set(self.sizes))} sizes; "
            f"95%: exponent {low:.3g} to {high:.3g}, floor {self.floor_interval[0]:.4g} to {self.floor_interval[1]:.4g}"
            + (f"; {self.note}" if self.note else "")
        )


def law(comparison: Comparison, seed: int = 0) -> Law | str:
    """The law over the rows that count; a sentence where they can't carry one."""
    if comparison.higher:
        return f"it is a law of losses, and of {comparison.metric} more is better"
    rows = [(row.cost("params"), row.mean) for row in comparison.rows if row.mean and (row.whole or comparison.forced)]
    known = [(float(size), middle.mean) for size, middle in rows if size]
    sizes, losses = zip(*known, strict=True) if known else ((), ())
    if len(set(sizes)) < SIZES or max(sizes) < RATIO * min(sizes):
        distinct = f"{len(set(sizes))} sizes" + (f", {min(sizes):,.0f} to {max(sizes):,.0f}" if sizes else "")
        return f"it takes {SIZES} sizes, the largest {RATIO:g} times the smallest; found {distinct}"
    unlike = [match.aspect for match in comparison.matches if match.aspect in _SAME and not match.alike]
    note = f"{' and '.join(unlike)} aren't matched, so this isn't of size alone" if unlike else ""
    return fit(sizes, losses, seed, note)


def fit(sizes: Sequence[float], losses: Sequence[float], seed: int = 0, note: str = "") -> Law | str:
    """The least squares of the loss, E >= 0 and A >= 0; a sentence where the loss doesn't fall with size.

    The bootstrap is of residuals, made as wide as three fitted numbers left them narrow: sqrt(n / (n - 3)).
    """
    n, y = np.asarray(sizes, float), np.asarray(losses, float)
    unit = float(np.exp(np.mean(np.log(n))))
    x = n / unit  # so that the columns of the least squares are of one size
    floor, scale, exponent = (value[0] for value in _solve(x, y[None]))
    if scale <= 0:
        return "the loss doesn't fall with size"
    fitted = floor + scale * x**-exponent
    left = y - fitted
    wide = np.sqrt(len(y) / (len(y) - 3)) * (left - left.mean())
    drawn = fitted + np.random.default_rng(seed).choice(wide, (DRAWS, len(y)))
    floors, scales, exponents = _solve(x, drawn)
    if exponent >= 0.99 * _EXPONENTS[-1] or exponent <= 1.01 * _EXPONENTS[0]:
        note = "; ".join(filter(None, [note, "the exponent lies at the end of what was tried: these sizes don't tell"]))
    grid = np.geomspace(n.min(), n.max(), 60)
    curves = floors[:, None] + scales[:, None] * (grid / unit) ** -exponents[:, None]
    low, high = np.percentile(curves, [2.5, 97.5], axis=0)
    middle = floor + scale * (grid / unit) ** -exponent
    return Law(
        float(floor), float(scale * unit**exponent), float(exponent), _interval(floors), _interval(exponents),
        tuple(map(float, n)), tuple(map(float, y)),
        tuple((float(a), float(b), float(c), float(d)) for a, b, c, d in zip(grid, middle, low, high, strict=True)),
        note,
    )  # fmt: skip


def _solve(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(E, A, a), each (draws,), for y (draws, n): for an exponent the rest is linear, so only that one is searched."""
    rows = np.arange(len(y))
    exponents = np.broadcast_to(_EXPONENTS, (len(y), len(_EXPONENTS)))
    for _ in range(3):  # each time between the neighbours of the best
        best = _linear(x, y, exponents)[2].argmin(1)
        low = exponents[rows, np.maximum(best - 1, 0)]
        high = exponents[rows, np.minimum(best + 1, exponents.shape[1] - 1)]
        exponents = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, 21)
    floors, scales, errors = _linear(x, y, exponents)
    best = errors.argmin(1)
    return floors[rows, best], scales[rows, best], exponents[rows, best]


def _linear(x: np.ndarray, y: np.ndarray, exponents: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """E, A and the squared error for each exponent, (draws, tried); neither below zero."""
    z = x ** -exponents[..., None]  # (draws, tried, n)
    mean_z, mean_y = z.mean(-1), y.mean(-1)[:, None]
    centred = z - mean_z[..., None]
    scales = (centred * (y - mean_y)[:, None]).sum(-1) / (centred**2).sum(-1)
    floors = mean_y - scales * mean_z
    through = (z * y[:, None]).sum(-1) / (z**2).sum(-1)  # with a floor of zero
    scales = np.where(floors < 0, through, scales)
    floors = np.maximum(floors, 0)
    flat = scales <= 0
    scales, floors = np.where(flat, 0.0, scales), np.where(flat, mean_y, floors)
    errors = ((y[:, None] - floors[..., None] - scales[..., None] * z) ** 2).sum(-1)
    return floors, scales, errors


def _interval(values: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)
