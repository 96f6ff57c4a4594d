"""An evaluation as a terminal shows it."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from . import Evaluation

_WIDTH = 60
"""Characters of a text that are shown."""


def render(found: Evaluation, title: str) -> RenderableType:
    """Figures, then scores, then a few answers."""
    parts: list[RenderableType] = [Text(f"{title}, {found.rows:,} validation rows", style="bold"), _figures(found)]
    if found.scores:
        parts += [Text(), _scores(found)]
    for example in found.examples:
        parts += [Text(), *_example(vars(example))]
    return Group(*parts)


def _table() -> Table:
    return Table(box=None, padding=(0, 2, 0, 0))


def _figures(found: Evaluation) -> Table:
    table = _table()
    for name in ("figure", ""):
        table.add_column(name, justify="right" if not name else "left")
    for name, value in found.metrics.items():
        table.add_row(name, f"{value:.4f}")
    return table


def _scores(found: Evaluation) -> Table:
    table = _table()
    names = list(next(iter(found.scores.values())))
    table.add_column("who answers")
    for name in names:
        table.add_column(name, justify="right")
    for number, (who, scores) in enumerate(found.scores.items()):
        cells = (f"{scores[name]:.2f}" for name in names)
        table.add_row(who, *cells, style="bold" if number == 0 else None)
    return table


def _example(example: dict[str, str]) -> list[Text]:
    lines = [Text(f"{name:<9}{_short(text)}") for name, text in example.items()]
    lines[-1].stylize("bold")  # what the model wrote
    return lines


def _short(text: str) -> str:
    line = " ".join(text.split()) or "(nothing)"
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
