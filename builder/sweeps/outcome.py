"""What became of a sweep: every point with its state and its reason, as a table and as jobs.json."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from builder.experiments.folder import RunFolder
from builder.experiments.metrics import better
from builder.whole import write_whole

from .plan import Planned
from .render import refusals

DONE = ("completed", "pruned")
"""The states of jobs that are not run again."""

STYLES = {"completed": "green", "failed": "red", "invalid": "yellow", "interrupted": "yellow"}


@dataclass(frozen=True)
class Outcome:
    """A point when the sweep has ended; `best` is {metric: value, step} of a run that validated.

    refused     whether it failed for what was asked for, and would again
    """

    job: int | None
    apart: tuple[str, ...]
    status: str
    reason: str
    seconds: float | None
    best: dict[str, Any]
    refused: bool = False


def status_of(folder: Path, job: int) -> str:
    """What a job says of itself."""
    return RunFolder(folder / str(job)).summary().get("status", "not started")


def outcomes(folder: Path, points: Iterable[Planned]) -> list[Outcome]:
    """What became of each point of a plan."""
    found = []
    for point in points:
        status, reason = str(point.status), point.reason
        said: dict[str, Any] = {}
        if point.job is not None:
            said = RunFolder(folder / str(point.job)).summary()
            status, reason = said.get("status", "not started"), said.get("reason") or ""
            if said.get("hash") not in (None, point.hash):
                status, reason = "failed", f"its folder holds another run, {said['hash']}; planned was {point.hash}"
        refused = status == "failed" and bool(said.get("refused"))
        best = said.get("best") or {}
        found.append(Outcome(point.job, point.apart, status, reason, said.get("seconds"), best, refused))
    return found


def right(found: list[Outcome]) -> bool:
    """Whether all that was asked for was run."""
    return all(outcome.status in (*DONE, "duplicate") for outcome in found)


def write(folder: Path, found: list[Outcome]) -> None:
    """Writes jobs.json. Raises OSError."""
    rows = [outcome.__dict__ for outcome in found]
    write_whole(folder / "jobs.json", json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


def render(folder: Path, found: list[Outcome]) -> RenderableType:
    """Every job with its state, then the points that were not launched, and how many there are of each kind."""
    table = Table(title=f"Sweep {folder}", title_style="bold", title_justify="left", box=None)
    table.add_column("job", justify="right")
    for column in ("what sets it apart", "state", "best", "reason"):
        table.add_column(column, overflow="fold")
    jobs = [outcome for outcome in found if outcome.job is not None]
    for outcome in jobs:
        metrics = ", ".join(f"{key} {value:.4g}" for key, value in outcome.best.items() if isinstance(value, float))
        state = Text(outcome.status, style=STYLES.get(outcome.status, ""))
        reason = Text(outcome.reason.partition("\n")[0])  # Text: brackets are no markup
        table.add_row(str(outcome.job), Text(" ".join(outcome.apart)), state, metrics, reason)
    counts = Counter(outcome.status for outcome in found)
    lines = [", ".join(f"{count} {status}" for status, count in counts.items())]
    if best := _best(jobs):
        lines.append(best)
    refused = [Text(line, style="yellow") for line in refusals(found)]
    return Group(table, *refused, Text("\n".join(lines), style="bold"))


def commands(folder: Path, found: list[Outcome]) -> list[str]:
    """What can be typed now, a line each that is not to be broken, and above it what it is for."""
    lines = []
    if any(outcome.job is not None and outcome.status not in DONE and not outcome.refused for outcome in found):
        lines += ["what is missing is run by", f"python -m recipes.train -m sweep.resume={folder}"]
    if any(outcome.status == "completed" for outcome in found):
        lines += ["all that is completed is compared by", f"python -m recipes.compare runs={folder}"]
    return lines


def _best(jobs: list[Outcome]) -> str:
    """Which job reached the best of the metric that its runs keep the best of; empty where none did."""
    reached = [(value, key, job) for job in jobs for key, value in job.best.items() if isinstance(value, float)]
    if not reached:
        return ""
    more = better(reached[0][1]) == "max"
    value, key, job = (max if more else min)(reached, key=lambda each: each[0])
    where = f"at step {job.best.get('step')}, job {job.job} ({' '.join(job.apart)})"
    return f"{'highest' if more else 'lowest'} {key}: {value:.4g} {where}"
