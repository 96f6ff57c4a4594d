"""The comparison as one HTML page that needs nothing else: tables that sort, plots that zoom, plotly.js inside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

from builder.whole import write_whole

from .apart import ABSENT_VALUE, shown
from .colours import colours
from .comparison import Comparison, Row
from .curves import AXIS_NAMES, BANDS, Line, lines, window
from .export import plain
from .page_parts import SCRIPT, STYLE
from .pareto import Plane
from .run import AXES
from .scaling import Law
from .table import count, number, spread, steps
from .values import is_higher_better

METRICS = 6
"""The page draws so many metrics: the ranked one, then those of validation and the training loss."""


def write(
    comparison: Comparison, planes: Sequence[Plane], found: Law | str, out: Path, more: Iterable[str] = ()
) -> Path:
    """Writes page.html; `more` are further sections in HTML. Raises OSError."""
    from plotly.offline import get_plotlyjs

    drawn = _drawn(comparison)
    data = plain(
        {
            "metric": f"{comparison.by} {comparison.metric}",
            "axes": AXIS_NAMES,
            "colours": colours(comparison.rows),
            "curves": drawn,
            "windows": _windows(comparison, drawn),
            "planes": [_plane(plane) for plane in planes],
            "law": asdict(found) if isinstance(found, Law) else None,
        }
    )
    text = json.dumps(data, allow_nan=False).replace("<", "\\u003c")  # no text in it can end the script
    page = "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8"><link rel="icon" href="data:,">',
            f"<title>{escape(_title(comparison))}</title><style>{STYLE}</style></head><body>",
            f"<h1>{escape(_title(comparison))}</h1>",
            *_verdict(comparison, found),
            *_curve_controls(drawn),
            *_table(comparison),
            '<h2>Cost and quality</h2><div id="planes" class="plots"></div>' if planes else "",
            f'<h2>Scaling law</h2><p>{escape(str(found))}</p><div id="law" class="plots"></div>'
            if isinstance(found, Law)
            else "",
            *more,
            *_pairs(comparison),
            *_runs(comparison),
            f"<script>{get_plotlyjs()}</script>",
            f'<script type="application/json" id="data">{text}</script>',
            f"<script>{SCRIPT}</script></body></html>",
        ]
    )
    write_whole(out / "page.html", page)
    return out / "page.html"


def html_table(head: Sequence[str], rows: Iterable[Sequence[Any]], kinds: Iterable[str] = ()) -> str:
    """A table that sorts; a cell is text, or (text, the number it sorts by), and everything is escaped."""
    rows, kinds = list(rows), list(kinds)
    aligned = ["" if rows and isinstance(rows[0][column], tuple) else "text" for column in range(len(head))]
    heads = "".join(f'<th class="{side}">{escape(name)}</th>' for name, side in zip(head, aligned, strict=True))
    lines = [
        f'<tr class="{kinds[index] if kinds else ""}">{"".join(map(_cell, row))}</tr>' for index, row in enumerate(rows)
    ]
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


class Markup(str):
    """Text that is HTML already."""


def _cell(cell: Any) -> str:
    if isinstance(cell, Markup):
        return f'<td class="text">{cell}</td>'
    if isinstance(cell, tuple):
        text, value = cell
        return f'<td data-value="{"" if value is None else value}">{escape(str(text))}</td>'
    return f'<td class="text">{escape(str(cell))}</td>'


def _title(comparison: Comparison) -> str:
    return f"{len(comparison.rows)} configurations, {len(comparison.runs)} runs, by {comparison.by} {comparison.metric}"


def _verdict(comparison: Comparison, found: Law | str) -> list[str]:
    said = []
    if comparison.refusal:
        said.append(f'<p class="warn">Not ranked: {escape(comparison.refusal)}</p>')
    elif comparison.overruled:
        said.append(f'<p class="warn">Ranked by force, though {escape(comparison.overruled)}</p>')
    matched = [match.what for match in comparison.matches if match.alike]
    said.append(f"<p>Matched within 1%: {escape('; '.join(matched) or 'nothing')}</p>")
    return said


def _drawn(comparison: Comparison) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """The lines by metric and axis, in plain Python, without what the script doesn't draw."""
    names = [comparison.metric, "train/loss", *(name for name in comparison.metrics if name.startswith("val/"))]
    bands = len(comparison.rows) <= BANDS
    drawn = {}
    for name in list(dict.fromkeys(name for name in names if name in comparison.metrics))[:METRICS]:
        own = name == comparison.metric
        view = replace(comparison, metric=name, higher=comparison.higher if own else is_higher_better(name))
        found = {axis: [_line(line, bands) for line in lines(view, axis)] for axis in AXES}
        if any(found.values()):
            drawn[name] = found
    return drawn


def _line(line: Line, bands: bool) -> dict[str, Any]:
    shaded = bands and line.seeds > 1
    return asdict(line) | {
        "label": escape(line.label),
        "low": line.low if shaded else None,
        "high": line.high if shaded else None,
    }


def _windows(comparison: Comparison, drawn: Iterable[str]) -> dict[str, tuple[float, float] | None]:
    return {name: window(lines(replace(comparison, metric=name), "step")) for name in drawn}


def _plane(plane: Plane) -> dict[str, Any]:
    costs = [spot.cost for spot in plane.spots]
    spots = [asdict(spot) | {"label": escape(spot.label)} for spot in plane.spots]
    axis = "<br>".join(map(escape, wrap(plane.axis + (", more is better" if plane.more else ""), 56)))
    return {"axis": axis, "spots": spots, "logs": min(costs) > 0 and max(costs) > 5 * min(costs)}


def _curve_controls(drawn: dict[str, Any]) -> list[str]:
    if not drawn:
        return []

    def choice(name: str, options: Iterable[tuple[str, str]]) -> str:
        inside = "".join(f'<option value="{escape(value)}">{escape(text)}</option>' for value, text in options)
        return f'<label>{name} <select id="{name}">{inside}</select></label>'

    metric, axis = choice("metric", ((name, name) for name in drawn)), choice("axis", AXIS_NAMES.items())
    logs = '<label><input type="checkbox" id="logs"> logarithmic</label>'
    return [
        f"<h2>Curves</h2><p>{metric}{axis}{logs}</p>",
        '<div id="curves"></div><p>Mean over seeds, least and most shaded; dashed: not whole.</p>',
    ]


def _table(comparison: Comparison) -> list[str]:
    tint = colours(comparison.rows)
    head = ["#", *comparison.keys.values(), "seeds", f"{comparison.by} {comparison.metric}", "at step", "marks"]
    head += ["params", "active params", "FLOPs per token", "state bytes per token", "training FLOPs", "tokens"]
    rows = [_row(row, comparison, tint[place]) for place, row in enumerate(comparison.rows)]
    kinds = ["" if row.whole else "part" for row in comparison.rows]
    return ["<h2>Configurations</h2>", html_table(head, rows, kinds)]


def _row(row: Row, comparison: Comparison, tint: str) -> list[Any]:
    item, middle = row.configuration, row.mean
    values = [shown(item.differing.get(path, ABSENT_VALUE)) for path in comparison.keys]
    if values and not item.known:
        values = [item.label, *[""] * (len(values) - 1)]
    costs = [row.cost(name) for name in ("params", "active_params", "flops_per_token", "state_bytes_per_token")]
    costs += [row.reached("flops"), row.reached("tokens")]
    swatch = f'<span class="swatch" style="background:{tint}"></span>{"" if row.rank is None else row.rank}'
    return [
        Markup(swatch), *values, (middle.n if middle else 0,) * 2, (spread(row), middle.mean if middle else None),
        (steps(row), row.values[0][1].step if row.values else None), "; ".join(row.marks),
        *((count(cost), cost) for cost in costs),
    ]  # fmt: skip


def _pairs(comparison: Comparison) -> list[str]:
    if not comparison.pairs:
        return []
    labels = [row.configuration.label for row in comparison.rows]
    told = sorted(comparison.pairs, key=lambda pair: pair.adjusted)
    rows = [
        [
            labels[pair.first], labels[pair.second], (f"{pair.difference:+.4g}", pair.difference),
            f"{pair.low:+.4g} to {pair.high:+.4g}", (f"{pair.adjusted:.2g}", pair.adjusted),
            "differ" if pair.differs else "level",
        ]
        for pair in told[:2000]
    ]  # fmt: skip
    left = f" The first 2000 of {len(told)}; pairs.csv has all." if len(told) > 2000 else ""
    return [
        f"<h2>Pairs</h2><p>Welch's t-test, p by Holm's correction over {len(told)} pairs.{left}</p>",
        html_table(["first", "second", "difference", "95%", "p", ""], rows),
    ]


def _runs(comparison: Comparison) -> list[str]:
    counted = {run.where: found for row in comparison.rows for run, found in row.values}
    rows = [
        [
            run.where, row.configuration.label, (shown(run.seed), run.seed), run.mark or run.state,
            (number(found.value) if (found := counted.get(run.where)) else "", found and found.value),
            (found.step if found else "", found and found.step), run.checkpoint or "",
        ]
        for row in comparison.rows
        for run in row.configuration.runs
    ]  # fmt: skip
    head = ["run", "configuration", "seed", "state", f"{comparison.by} {comparison.metric}", "at step", "checkpoint"]
    return ["<h2>Runs</h2>", html_table(head, rows)]
