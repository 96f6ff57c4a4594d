"""A comparison for a terminal: a line a configuration, then what is matched, which differ, and what is marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from .comparison import Comparison, Row
from .fitting import Fitting
from .run import COMPLETED
from .statistics import LEVEL, mean
from .values import last

ROWS = 60
"""So many configurations are shown; the files have all."""

LINES = 12
"""So many lines of a kind are shown; the files have all."""


def render(comparison: Comparison) -> RenderableType:
    """A rich renderable of the whole comparison."""
    return Group(_table(comparison), *_besides(comparison), Text(), *_below(comparison))


def number(value: float | None) -> str:
    """A measured number to four digits; a gap where there is none."""
    return "" if value is None else f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def count(value: float | None) -> str:
    """A large count with its unit."""
    if value is None:
        return ""
    for size, unit in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * size:  # what would round to a thousand of the next smaller unit
            return f"{value / size:.3g}{unit}"
    return f"{value:g}"


def spread(row: Row) -> str:
    """The mean of a row with half its interval."""
    if row.mean is None:
        return ""
    half = row.mean.half
    return number(row.mean.mean) + ("" if half is None else f" ± {half:.2g}")


def steps(row: Row) -> str:
    """The steps that the values of a row came from."""
    found = sorted({found.step for _, found in row.values})
    return "" if not found else f"{found[0]}" if len(found) == 1 else f"{found[0]}-{found[-1]}"


def words(comparison: Comparison, rows: Sequence[Row]) -> dict[str, list[str]]:
    """What sets rows apart, by column; a job that never had a config shows what was typed, in their place if it chose
    something else."""
    columns, lines = comparison.columns, []
    if not columns.paths:
        return {"configuration": [row.configuration.label for row in rows]}
    for item in (row.configuration for row in rows):
        typed = {word.partition("=")[0] for word in item.runs[0].apart} - {"seed"}
        told = item.known or typed <= set(columns.paths.values())
        lines.append(columns.cells(item.differing) if told else [item.label, *[""] * (len(columns.paths) - 1)])
    return {name: list(cells) for name, cells in zip(columns.paths, zip(*lines, strict=True), strict=True)}


def _table(comparison: Comparison) -> Fitting:
    """Columns of costs that are the same in every row are left out: below stands what is matched."""
    rows = comparison.rows[:ROWS]
    others = [mean(_others(row, comparison)) for row in rows]
    costs = {
        "params": [count(row.cost("params")) for row in rows],
        "FLOPs": [count(row.reached("flops")) for row in rows],
        "tokens": [count(row.reached("tokens")) for row in rows],
    }
    numbers = {
        "seeds": [str(row.mean.n if row.mean else 0) for row in rows],
        _what(comparison): [spread(row) for row in rows],
        "step": [steps(row) for row in rows],
        "last" if comparison.by == "best" else "best": [number(other.mean if other else None) for other in others],
        **{name: cells for name, cells in costs.items() if len(set(cells) - {""}) > 1},
    }
    return Fitting(
        title=f"{len(comparison.rows)} configurations, {len(comparison.runs)} runs, by {_what(comparison)}",
        ranks=[str(row.rank or "") for row in rows],
        words=words(comparison, rows),
        together=[row.configuration.label for row in rows],
        numbers=numbers,
        marks=[_marks(row) for row in rows],
        faint=[not row.whole for row in rows],
    )


def _besides(comparison: Comparison) -> Iterator[Text]:
    """What the table leaves out."""
    if (left := len(comparison.rows) - ROWS) > 0:
        yield Text(f"and {left} more")
    yield from (Text(line, style="dim") for line in comparison.columns.fixed)


def _what(comparison: Comparison) -> str:
    return f"{comparison.by} {comparison.metric}"


def _marks(row: Row) -> str:
    states = [run.state for run in row.configuration.runs if run.state != COMPLETED]
    marks = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
    marks += ["short"] * any(run.short and run.state == COMPLETED for run in row.configuration.runs)
    marks += ["no number"] * (len(row.values) < len(row.used))
    return ", ".join(marks)


def _others(row: Row, comparison: Comparison) -> list[float]:
    """The last values where the best are ranked, and the other way round."""
    found = row.of(comparison.metric, comparison.higher)
    chosen = [end if comparison.by == "best" else top for _, top, end in found]
    return [value.value for value in chosen if value is not None and value.value == value.value]


def _below(comparison: Comparison) -> Iterator[Text]:
    if comparison.refusal:
        yield Text(f"not ranked: {comparison.refusal}", style="bold yellow")
        yield Text(comparison.advice, style="yellow")
    elif comparison.overruled:
        yield Text(f"ranked by force, though {comparison.overruled}", style="yellow")
    matched = [match.what for match in comparison.matches if match.alike]
    if matched:
        yield Text(f"matched within 1%: {'; '.join(matched)}", style="dim")
    yield from _pairs(comparison)
    yield from _some([mark for row in comparison.rows for mark in row.marks], "yellow")


def first(comparison: Comparison) -> str:
    """Which run the best number is of: its folder and its checkpoint, in a line that is not to be broken."""
    everyone = [(found, run) for row in comparison.rows for run, found in row.values if row.whole or comparison.forced]
    if not everyone:
        return ""
    found, run = (max if comparison.higher else min)(everyone, key=lambda entry: entry[0].value)
    word = comparison.by if comparison.by == "best" else "best last"
    end = last(run.series[comparison.metric])
    return (
        f"{word} {comparison.metric}: {number(found.value)} at step {found.step}, last {number(end and end.value)}; "
        f"{run.where}" + (f", {run.checkpoint}" if run.checkpoint else "")
    )


def _pairs(comparison: Comparison) -> Iterator[Text]:
    total = len(comparison.pairs)
    if not total:
        yield Text("no test: it takes two configurations with two seeds each or more", style="dim")
        return
    apart = [pair for pair in comparison.pairs if pair.differs]
    yield Text(
        f"{len(apart)} of {total} pairs differ (Welch's t-test, p by Holm over {total}, level {1 - LEVEL:.2g}; "
        f"mean ± {LEVEL:.0%} interval)"
    )
    told = sorted(comparison.pairs, key=lambda pair: pair.adjusted)
    if comparison.ranked:  # is the first one really ahead?
        told = sorted((pair for pair in told if pair.first == 0), key=lambda pair: pair.second)
    labels = [row.configuration.label for row in comparison.rows]
    lines = [
        f"  {labels[pair.first]} - {labels[pair.second]}: {pair.difference:+.3g} "
        f"({pair.low:+.3g} to {pair.high:+.3g}), p {pair.adjusted:.2g}{'' if pair.differs else ', level'}"
        for pair in told
    ]
    yield from _some(lines, "", total)


def _some(lines: Sequence[str], style: str, total: int | None = None) -> Iterator[Text]:
    shown_lines = lines[:LINES]
    for line in shown_lines:
        yield Text(line, style=style)
    if (left := (total or len(lines)) - len(shown_lines)) > 0:
        yield Text(f"  and {left} more, in the files", style="dim")
