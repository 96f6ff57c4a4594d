"""One run as a comparison sees it, wherever it was read: state, config, costs, and what was logged when."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

COMPLETED, FAILED, INTERRUPTED, RUNNING, ABSENT = "completed", "failed", "interrupted", "running", "not started"
DAMAGED = "damaged"
"""The states of a run; `not started` is a job that a sweep planned and that left no folder."""

AXES = ("step", "tokens", "flops")


class Point(NamedTuple):
    """What was logged of one metric after `step` optimizer steps; `value` is NaN where it was no number."""

    step: int
    tokens: int | None
    flops: int | None
    value: float


Series = list[Point]
"""The points of one metric, by step."""


@dataclass(frozen=True)
class Run:
    """A run, or a job that never became one.

    where       its folder, or wandb:entity/project/id
    config      as it was frozen; {} where there never was one
    typed       values by path that a sweep gave a job
    apart       those of them that not every job of its sweep has, as they were typed
    hash        what its config.yaml states; None where it states none
    corpus      the fingerprint of its text, split and tokenizer; None where it isn't known
    costs       params, active_params, flops_per_token and state_bytes_per_token, as far as they are known
    series      what was logged, by metric
    checkpoint  where the best weights lie, if they do
    """

    where: str
    name: str
    state: str
    reason: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    typed: Mapping[str, Any] = field(default_factory=dict)
    apart: tuple[str, ...] = ()
    hash: str | None = None
    corpus: str | None = None
    costs: Mapping[str, int] = field(default_factory=dict)
    series: Mapping[str, Series] = field(default_factory=dict)
    checkpoint: str | None = None

    @property
    def seed(self) -> int | None:
        """The seed of the run, None where it isn't known."""
        return (self.config or self.typed).get("seed")

    @cached_property
    def end(self) -> Point | None:
        """The point that was logged last, of whichever metric."""
        return max(
            (points[-1] for points in self.series.values() if points), key=lambda point: point.step, default=None
        )

    @property
    def planned(self) -> int | None:
        """Optimizer steps that the config asks for."""
        trainer = self.config.get("trainer")
        return trainer.get("max_steps") if isinstance(trainer, Mapping) else None

    @property
    def short(self) -> bool:
        """Whether it ended before the steps that its config asks for."""
        return self.planned is not None and (self.end is None or self.end.step < self.planned)

    @property
    def mark(self) -> str:
        """What must be known before its numbers are used; empty for a run that is whole."""
        said = self.reason.partition("\n")[0]
        if self.state == COMPLETED:
            cut = f"short: {self.end.step if self.end else 0} of {self.planned} steps" if self.short else ""
            return ", ".join(part for part in (cut, said) if part)
        reached = f" at step {self.end.step} of {self.planned}" if self.end and self.planned else ""
        return f"{self.state}{reached}" + (f": {said}" if said else "")


def series(rows: Iterable[Mapping[str, Any]]) -> dict[str, Series]:
    """The rows of a log by metric; what is text for no number is NaN, and what is no number at all is left out."""
    found: dict[str, Series] = {}
    for row in rows:
        step = _number(row.get("step"))
        if step is None or not math.isfinite(step):
            continue
        tokens, flops = (_count(row.get(axis)) for axis in AXES[1:])
        for name, value in row.items():
            if name in AXES or name.startswith("_"):
                continue
            number = math.nan if value is None else _number(value)
            if number is not None:
                found.setdefault(name, []).append(Point(int(step), tokens, flops, number))
    for points in found.values():
        points.sort(key=lambda point: point.step)
    return found


def _number(value: Any) -> float | None:
    if isinstance(value, str) and value.lower() in ("nan", "infinity", "-infinity", "inf", "-inf"):
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else math.nan


def _count(value: Any) -> int | None:
    number = _number(value)
    return None if number is None or math.isnan(number) else int(number)
