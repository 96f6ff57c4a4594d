"""The coordinate check for a terminal: a line for each kind of quantity, its slopes by step, and what they say."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from builder.finding import Status

from .result import TOLERANCE, Coordinates

_STYLE = {Status.PASS: "green", Status.WARN: "yellow", Status.FAIL: "bold red"}


def table(found: Coordinates, title: str) -> RenderableType:
    """A rich renderable of the steepest of every kind."""
    lines = Table(title=title, title_style="bold", title_justify="left", box=None, padding=(0, 1))
    lines.add_column()  # the status
    lines.add_column(style="cyan", no_wrap=True)  # the quantity
    for step in range(len(found.verdicts[0].sizes)):
        lines.add_column(f"{step}", justify="right")
    lines.add_column("moved", justify="right")
    for verdict in found.steepest:
        numbers = [f"{slope:.2f}" for slope in (*verdict.sizes, verdict.moves[-1])]
        status = Text(str(verdict.status), style=_STYLE[verdict.status])
        lines.add_row(status, str(verdict.quantity), *numbers)
    told = [verdict for verdict in found.steepest if verdict.why]
    why = [Text(f"{verdict.quantity}: {verdict.why}", style=_STYLE[verdict.status]) for verdict in told]
    return Group(lines, *why, Text(_below(found), style="dim"))


def _below(found: Coordinates) -> str:
    seeds = next(iter(found.sizes.values())).shape[1]
    return (
        f"slopes of log |x| against log width after so many steps; moved: of log |x - x_0|\n"
        f"above {TOLERANCE:g} it grows; of each kind the steepest layer\n"
        f"widths {', '.join(map(str, found.widths))}, mean of {seeds} seeds"
    )
