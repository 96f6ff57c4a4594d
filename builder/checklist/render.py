"""The report for a terminal: a block a section, the deploy contract as a table, what must be mended in colour."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from builder.finding import SECTIONS, Status

from .deploy import Deployed
from .report import Report

_STYLE = {Status.PASS: "green", Status.WARN: "yellow", Status.FAIL: "bold red", Status.UNKNOWN: "magenta"}


def render(report: Report, title: str = "Checklist") -> RenderableType:
    """A rich renderable of the whole report."""
    table = Table(title=title, title_style="bold", title_justify="left", box=None, padding=(0, 1), show_header=False)
    table.add_column()  # the status
    table.add_column(style="cyan", no_wrap=True)  # the config path
    table.add_column(overflow="fold")  # what was found there, and the rule
    for section, name in SECTIONS.items():
        table.add_row("", Text(f"{section}. {name}", style="bold"), "")
        for finding in (f for f in report.findings if f.section == section):
            text = Text(finding.found)
            text.append(f" · {finding.rule}", style="dim")
            if finding.fix:
                text.append(f"\nwrite {finding.fix}", style=_STYLE[finding.status])
            table.add_row(Text(finding.status.value, style=_STYLE[finding.status]), finding.path, text)
    verdict = Text(report.verdict, style="bold green" if report.ok else "bold red")
    return Group(table, *([_contract(report)] if report.deploy else []), verdict)


def _contract(report: Report) -> RenderableType:
    """A line for each fact, and a column for each kind of layer: few have many kinds, and no terminal is wide."""
    table = Table(title="\nDeploy contract", title_style="bold", title_justify="left", box=None, padding=(0, 1))
    table.show_header = False
    for style in ("dim", *(None for _ in report.deploy)):
        table.add_column(style=style, overflow="fold")
    every = [row.cells() for row in report.deploy]
    for place, (field, heading) in enumerate(Deployed.COLUMNS):
        judged = field in ("status", "fix")
        styles = [_STYLE[row.status] if judged else "" for row in report.deploy]
        cells = [Text(cells[place], style=style) for cells, style in zip(every, styles, strict=True)]
        if any(cell.plain for cell in cells):
            table.add_row(heading, *cells)
    return table
