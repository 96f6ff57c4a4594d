"""A table that fits where it is printed: upright or turned, or with all words in one column; no number is ever cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

NARROW = 16
"""A column of words no wider than this is never broken, and no name of a column is broken to less."""

ROOM = 24
"""The least width of a column that holds all words of a line."""

Cells = Mapping[str, Sequence[str]]
"""Columns by their names, a cell for each line."""


@dataclass(frozen=True)
class Fitting:
    """Lines of words and numbers.

    ranks       the place of each line, or nothing
    words       columns that may be broken over several lines
    together    the same words in one cell a line
    numbers     columns that are never broken
    marks       what must be known of a line
    faint       whether a line is printed so
    """

    title: str
    ranks: Sequence[str]
    words: Cells
    together: Sequence[str]
    numbers: Cells
    marks: Sequence[str]
    faint: Sequence[bool]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Upright, a column for each key; else turned, a column for each line; else upright, all words in one column;
        else turned, in as many parts as it takes."""
        width, free = options.max_width, options.update(width=10_000)
        whole, together = range(len(self.together)), {"configuration": self.together}

        def turned_fits(part: Sequence[int]) -> bool:
            return console.measure(self._turned(part), options=free).minimum <= width  # broken between words alone

        def upright_fits(table: Table) -> bool:
            return console.measure(table, options=free).maximum <= width

        if upright_fits(self._upright(self.words)):
            yield self._upright(self.words)
        elif turned_fits(whole):
            yield self._turned(whole)
        elif upright_fits(self._upright(together, ROOM)):
            yield self._upright(together, width)
        else:
            yield from map(self._turned, _parts(whole, turned_fits))

    def _upright(self, words: Cells, room: int | None = None) -> Table:
        """A line for each. Words take `room` at most where it is given, and the names of numbers as little as they can;
        else nothing is broken that is narrow."""
        table = self._table(self.title)
        columns = [*words.values(), *self.numbers.values()]
        if any(self.ranks):
            table.add_column("#", justify="right", no_wrap=True)
            columns.insert(0, self.ranks)
        for name, cells in words.items():
            narrow = _width([name, *cells]) <= NARROW
            table.add_column(Text(name), style="cyan", overflow="fold", no_wrap=narrow, max_width=room)
        for name, cells in self.numbers.items():
            head = name if room is None else "\n".join(wrap(name, max(NARROW, _width(cells))))
            table.add_column(Text(head), justify="right", no_wrap=True)
        if any(self.marks):
            table.add_column("", style="yellow", no_wrap=_width(self.marks) <= NARROW)
            columns.append(self.marks)
        for faint, *cells in zip(self.faint, *columns, strict=True):
            table.add_row(*map(Text, cells), style="dim" if faint else "")  # Text: brackets are no markup
        return table

    def _turned(self, part: Sequence[int]) -> Table:
        """A column for each line of a part."""
        table = self._table(self.title if 0 in part else None, show_header=False)
        table.add_column(overflow="fold")
        for place in part:
            least = _width([cells[place] for cells in self.numbers.values()])
            table.add_column(overflow="fold", min_width=least, style="dim" if self.faint[place] else "")
        for name, cells, style in self._rows():
            if any(cells[place] for place in part):
                table.add_row(Text(name), *(Text(cells[place]) for place in part), style=style)
        return table

    def _rows(self) -> Iterator[tuple[str, Sequence[str], str]]:
        yield "#", self.ranks, ""
        yield from ((name, cells, "cyan") for name, cells in self.words.items())
        yield from ((name, cells, "") for name, cells in self.numbers.items())
        yield "", self.marks, "yellow"

    @staticmethod
    def _table(title: str | None, show_header: bool = True) -> Table:
        told = None if title is None else Text(title)
        table = Table(title=told, title_justify="left", box=None, padding=(0, 1, 0, 0), show_header=show_header)
        table.title_style = "bold"
        return table


def _parts(lines: Sequence[int], fits: Callable[[Sequence[int]], bool]) -> Iterator[Sequence[int]]:
    """The lines in parts, each as large as it fits."""
    start = 0
    for end in range(1, len(lines) + 1):
        if end == len(lines) or not fits(lines[start : end + 1]):
            yield lines[start:end]
            start = end


def _width(cells: Sequence[str]) -> int:
    return max(map(len, cells), default=0)
