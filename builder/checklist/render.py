"""The report for a terminal: one table, a section a block, what must be mended in colour."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from builder.finding import SECTIONS, Status

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
    return Group(table, Text(report.verdict, style="bold green" if report.ok else "bold red"))
