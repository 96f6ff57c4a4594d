"""How sizes and moves go with width: a slope for each quantity and step, and what is to be said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from builder.finding import Status

from .trace import Quantity

TOLERANCE = 0.25
"""The steepest slope that counts as none: half of that of a product of a drawn matrix and a drawn vector, 1 / 2."""
_TINY = 1e-30  # of what is 0, which has no logarithm
_RANK = {Status.PASS: 0, Status.WARN: 1, Status.FAIL: 2}


@dataclass(frozen=True)
class Verdict:
    """Of one quantity, the slopes of log |x| against log width after 0, 1 ... steps, and of log |x - x_0| from 1 on."""

    quantity: Quantity
    sizes: tuple[float, ...]
    moves: tuple[float, ...]
    status: Status
    why: str

    @property
    def weight(self) -> tuple[int, float]:
        """What comes first where one of several is shown: the worst, and of those the steepest."""
        return _RANK[self.status], max(*self.sizes, *self.moves)

    def to_dict(self) -> dict[str, Any]:
        """The verdict in plain Python; what is no finite number is None."""
        where = {"what": self.quantity.what, "layer": self.quantity.layer}
        slopes = {"sizes": self.sizes, "moves": self.moves}
        known = {name: [x if isfinite(x) else None for x in values] for name, values in slopes.items()}
        return where | {"status": str(self.status), "why": self.why} | known


@dataclass(frozen=True)
class Coordinates:
    """Mean |x| and mean |x - x_0| of every quantity, (W, N, S + 1): by width, by seed, and after 0 to S steps."""

    widths: tuple[int, ...]
    sizes: Mapping[Quantity, Tensor]
    moves: Mapping[Quantity, Tensor]

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """One of each quantity, in the order of the pass."""
        return tuple(self._verdict(quantity) for quantity in self.sizes)

    @property
    def failures(self) -> tuple[Verdict, ...]:
        """Those that fail."""
        return tuple(verdict for verdict in self.verdicts if verdict.status is Status.FAIL)

    @property
    def steepest(self) -> tuple[Verdict, ...]:
        """The verdicts, of what there is in every layer the one that weighs most."""
        found: dict[str, Verdict] = {}
        for verdict in self.verdicts:
            what = verdict.quantity.what
            found[what] = max(found.get(what, verdict), verdict, key=lambda one: one.weight)
        return tuple(found.values())

    def to_dict(self) -> dict[str, Any]:
        """The verdicts in plain Python."""
        verdicts = [verdict.to_dict() for verdict in self.verdicts]
        return {"widths": self.widths, "tolerance": TOLERANCE, "ok": not self.failures, "quantities": verdicts}

    def _verdict(self, quantity: Quantity) -> Verdict:
        sizes, moves = self.sizes[quantity], self.moves[quantity]
        slopes, moved = (tuple(_slopes(self.widths, values).tolist()) for values in (sizes, moves))
        finite = (sizes.isfinite() & moves.isfinite()).all(-1).all(-1)
        if not finite.all():
            broken = ", ".join(
                str(width) for width, whole in zip(self.widths, finite.tolist(), strict=True) if not whole
            )
            return Verdict(quantity, slopes, moved[1:], Status.FAIL, f"no number at width {broken}")
        return Verdict(quantity, slopes, moved[1:], *_judged(quantity, slopes, moved[1:]))


def _judged(quantity: Quantity, sizes: tuple[float, ...], moves: tuple[float, ...]) -> tuple[Status, str]:
    """Logits may move less at first: those of a drawn head shrink with width, until what was learned outweighs them."""
    if max(sizes) > TOLERANCE:
        return Status.FAIL, f"grows with width, after {_counted(sizes.index(max(sizes)))} the most"
    if max(moves) > TOLERANCE:
        return Status.FAIL, f"moves more the wider it is, after {_counted(1 + moves.index(max(moves)))} the most"
    if moves[-1] < -TOLERANCE and quantity.layer is not None:
        return Status.WARN, "moves less the wider it is: a rate falls too fast"
    return Status.PASS, ""


def _counted(steps: int) -> str:
    return f"{steps} step" if steps == 1 else f"{steps} steps"


def _slopes(widths: tuple[int, ...], values: Tensor) -> Tensor:
    """The least-squares slopes of log values (W, N, S + 1), a mean over seeds, against log widths: (S + 1,)."""
    x = torch.tensor(widths, dtype=torch.float64).log2()
    y = values.mean(1).clamp_min(_TINY).log2()  # (W, S + 1)
    x = x - x.mean()
    return (x[:, None] * y).sum(0) / x.square().sum()
