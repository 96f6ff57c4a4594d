"""A plan for people: on a terminal, and as plan.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from builder.markdown import code, plain, table
from builder.memory import told
from builder.whole import write_whole

from .plan import JUDGED, Plan, Planned

SHOWN = 24
"""Jobs that a terminal shows; plan.md has all."""

COLUMNS = ("job", "what sets it apart", "parameters", "FLOPs/token", "memory", "time")


class Refused(Protocol):
    """What a line about a point that isn't launched needs of it."""

    @property
    def status(self) -> str: ...
    @property
    def apart(self) -> tuple[str, ...]: ...
    @property
    def reason(self) -> str: ...


def render(plan: Plan) -> RenderableType:
    """The plan as a rich renderable."""
    shown = Table(title=f"Plan of sweep {plan.sweep}", title_style="bold", title_justify="left", box=None)
    for column in COLUMNS:
        words = column == COLUMNS[1]
        shown.add_column(column, justify="left" if words else "right", overflow="fold", no_wrap=not words)
    for point in plan.jobs[:SHOWN]:
        shown.add_row(*map(Text, _cells(point)))  # Text: brackets are no markup
    parts: list[RenderableType] = [shown]
    if len(plan.jobs) > SHOWN:
        parts.append(Text(f"... and {len(plan.jobs) - SHOWN} more jobs in plan.md", style="dim"))
    parts += [Text(line, style="yellow") for line in refusals(plan.points)]
    parts += [Text(in_all(plan), style="bold")] + [Text(JUDGED, style="dim")] * bool(plan.jobs)
    return Group(*parts)


def in_all(plan: Plan) -> str:
    """One line: how many points of each kind, and what the jobs take together."""
    jobs = plan.jobs
    parts = [f"{_counted(len(plan.points), 'point')}: {_counted(len(jobs), 'job')}"]
    parts += [f"{len(found)} {status}" for status in ("invalid", "duplicate") if (found := plan.of(status))]
    line = ", ".join(parts)
    if jobs:
        line += f"; {sum(point.flops or 0 for point in jobs):.3g} FLOPs"
        seconds = [point.seconds for point in jobs]
        known = [second for second in seconds if second is not None]
        line += f", about {_time(sum(known))} of steps one after the other" if len(known) == len(seconds) else ""
    return line


def write(plan: Plan, folder: Path) -> None:
    """Writes plan.md. Raises OSError."""
    judged = f" Each job is {JUDGED}." if plan.jobs else ""
    lines = [f"# Plan of sweep {plan.sweep}", "", f"{in_all(plan)}.{judged}", ""]
    lines += [table(COLUMNS, [[plain(cell) for cell in _cells(point)] for point in plan.jobs])]
    for status, title in (("invalid", "Invalid: not launched"), ("duplicate", "Duplicates: not launched")):
        if found := plan.of(status):
            points = [f"- {code(' '.join(point.apart)) or 'the point'}: {plain(point.reason)}" for point in found]
            lines += [f"## {title}", "", *points, ""]
    lines += ["Time is that of a step measured where the plan was made, scaled by FLOPs; memory is that of one rank."]
    write_whole(folder / "plan.md", "\n".join(lines) + "\n")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _cells(point: Planned) -> list[str]:
    memory = "not forecast" if point.memory is None else told(point.memory)
    time = "not known" if point.seconds is None else _time(point.seconds)
    return [str(point.job), " ".join(point.apart), f"{point.params:,}", f"{point.flops_per_token:,}", memory, time]


def refusals(points: Iterable[Refused]) -> Iterable[str]:
    """Each reason for which points were not launched once, with the first of them."""
    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
    for point in points:
        if point.status == "invalid":
            reasons[point.status, point.reason].append(" ".join(point.apart))
        elif point.status == "duplicate":  # each of another job: one line for all, plan.md has them by one
            words = f"{' '.join(point.apart) or 'a point'} is {point.reason.removeprefix('the same model and run as ')}"
            reasons[point.status, "the same model and run"].append(words)
    for (status, reason), words in reasons.items():
        more = f" and {len(words) - 3} more" if len(words) > 3 else ""
        yield f"{status}: {', '.join(words[:3]) or 'the point'}{more}: {reason}"


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
