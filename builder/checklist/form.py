"""A report and the costs of the model in the forms that people read: a table, text, Markdown."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console

from builder.ledger import Ledger

from .markdown import markdown
from .render import render
from .report import Report

Form = Callable[[Report, "Ledger | None", str, Console], None]


def _table(report: Report, costs: Ledger | None, title: str, console: Console) -> None:
    console.print(render(report, title))
    console.print("" if costs is None else f"\n{costs}", highlight=False)


def _text(report: Report, costs: Ledger | None, title: str, console: Console) -> None:
    console.out("\n".join([title, str(report), *([] if costs is None else ["", str(costs)])]), highlight=False)


def _markdown(report: Report, costs: Ledger | None, title: str, console: Console) -> None:
    ledger = "" if costs is None else f"\n## Ledger\n\n```\n{costs}\n```"
    console.out(markdown(report, title) + ledger, highlight=False)


FORMS: dict[str, Form] = {"table": _table, "text": _text, "markdown": _markdown}
"""What prints a report, by the name of the form."""
