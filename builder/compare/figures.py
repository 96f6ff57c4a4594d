"""The figures of a comparison as PNG: loss along its axes, the Pareto fronts, the scaling law, and along a key."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

from builder.whole import whole

from .along import Along
from .colours import LEGEND, colours, told_apart
from .comparison import Comparison
from .curves import AXIS_NAMES, BANDS, lines, window
from .pareto import Plane
from .run import AXES
from .scaling import Law

_DPI = 120
_PANEL = (4.6, 3.9)  # inches


def write(
    comparison: Comparison, planes: Sequence[Plane], found: Law | str, out: Path, over: Along | None = None
) -> list[Path]:
    """Writes curves.png, pareto.png, scaling.png and along.png, as far as there is something to see. Raises OSError."""
    made = []
    tint = colours(comparison.rows)
    drawn = {axis: lines(comparison, axis) for axis in AXES}
    if any(drawn.values()):
        made.append(_save(_curves(comparison, drawn, tint), out / "curves.png"))
    if planes:
        made.append(_save(_pareto(comparison, planes, tint), out / "pareto.png"))
    if isinstance(found, Law):
        made.append(_save(_scaling(comparison, found), out / "scaling.png"))
    if over is not None:
        made.append(_save(_along(over, comparison.by), out / "along.png"))
    return made


def section(over: Along, picture: Path) -> str:
    """The picture of a metric along a key, as HTML that holds it."""
    title = escape(f"{over.metric} along {over.path}")
    data = b64encode(picture.read_bytes()).decode()
    return f'<h2>{title}</h2><img alt="{title}" src="data:image/png;base64,{data}">'


def _panels(count: int, extra: float = 0.0) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure((_PANEL[0] * count, _PANEL[1] + extra), dpi=_DPI, layout="constrained")
    panels = figure.subplots(1, count, squeeze=False)[0]
    for panel in panels:
        panel.grid(True, color="0.92")
        panel.set_axisbelow(True)
        panel.tick_params(labelsize=8)
    return figure, list(panels)


def _save(figure: Any, path: Path) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with whole(path, "wb") as file:
        FigureCanvasAgg(figure).print_png(file)
    return path


def _curves(comparison: Comparison, drawn: dict[Any, list[Any]], tint: list[str]) -> Any:
    shown = {axis: found for axis, found in drawn.items() if found}
    named = next(iter(shown.values()))[:LEGEND]
    total = len(next(iter(shown.values())))
    figure, panels = _panels(len(shown), extra=0.22 * (len(named) + 1))
    for panel, (axis, found) in zip(panels, shown.items(), strict=True):
        for line in reversed(found):  # the first rank on top
            style = "--" if line.dashed else "-"
            few = {"marker": "o", "markersize": 3} if len(line.x) < 20 else {}
            panel.plot(line.x, line.y, style, color=tint[line.place], linewidth=1.4, **few)
            if line.seeds > 1 and len(found) <= BANDS:
                panel.fill_between(line.x, line.low, line.high, color=tint[line.place], alpha=0.15, linewidth=0)
        panel.set_xlabel(AXIS_NAMES[axis], fontsize=9)
        panel.set_ylabel(comparison.metric, fontsize=9)
        if limits := window(found):
            panel.set_ylim(*limits)
    _legend(figure, [(line.label, line.place, "--" if line.dashed else "-") for line in named], tint, total)
    figure.suptitle(f"{comparison.metric}: mean over seeds, least and most shaded; dashed: not whole", fontsize=9)
    return figure


def _legend(figure: Any, named: Sequence[tuple[str, int, str]], tint: list[str], total: int) -> None:
    from matplotlib.lines import Line2D

    handles = []
    for label, place, style in named:
        handle = Line2D([], [], color=tint[place], label=label)
        handle.set(**({"marker": style, "linestyle": ""} if style == "o" else {"linestyle": style}))
        handles.append(handle)
    if total > len(named):
        handles.append(Line2D([], [], linestyle="", label=f"and {total - len(named)} more"))
    figure.legend(handles=handles, loc="outside lower left", fontsize=8, frameon=False)


def _pareto(comparison: Comparison, planes: Sequence[Plane], tint: list[str]) -> Any:
    on_front = {spot.place: spot for plane in planes for spot in plane.front}
    named = [on_front[place] for place in sorted(on_front)][:LEGEND]
    figure, panels = _panels(len(planes), extra=0.22 * (len(named) + 1))
    for panel, plane in zip(panels, planes, strict=True):
        front = plane.front
        panel.plot([spot.cost for spot in front], [spot.value for spot in front], "-", color="0.6", linewidth=1)
        for spot in plane.spots:
            if spot.low is not None:
                panel.plot([spot.cost] * 2, [spot.low, spot.high], "-", color=tint[spot.place], linewidth=1, alpha=0.6)
            face = tint[spot.place] if spot.on_front else "white"
            panel.plot([spot.cost], [spot.value], "o", color=tint[spot.place], markerfacecolor=face, markersize=6)
        costs = [spot.cost for spot in plane.spots]
        if min(costs) > 0 and max(costs) > 5 * min(costs):
            panel.set_xscale("log")
        panel.margins(x=0.1, y=0.1)
        panel.set_xlabel("\n".join(wrap(plane.axis + (", more is better" if plane.more else ""), 44)), fontsize=9)
        panel.set_ylabel(f"{comparison.by} {comparison.metric}", fontsize=9)
    _legend(figure, [(spot.label, spot.place, "o") for spot in named], tint, len(on_front))
    figure.suptitle(
        "filled, and named below: on the front, no other one is as cheap and as good; bars: 95% over seeds", fontsize=9
    )
    return figure


def _scaling(comparison: Comparison, found: Law) -> Any:
    figure, (panel,) = _panels(1, extra=0.3)
    sizes, middle, low, high = zip(*found.band, strict=True)
    panel.fill_between(sizes, low, high, color="#1f77b4", alpha=0.2, linewidth=0, label="95% of the resampled fits")
    formula = f"{found.floor:.3g} + {found.scale:.3g} / N^{found.exponent:.3g}"
    panel.plot(sizes, middle, "-", color="#1f77b4", label=formula)
    panel.plot(found.sizes, found.losses, "o", color="black", markersize=5)
    panel.set_xscale("log")
    panel.set_xlabel("parameters N", fontsize=9)
    panel.set_ylabel(f"{comparison.by} {comparison.metric}", fontsize=9)
    panel.legend(fontsize=8, frameon=False)
    panel.set_title(found.note, fontsize=7, wrap=True)
    return figure


def _along(over: Along, by: str) -> Any:
    figure, (panel,) = _panels(1, extra=0.22 * (len(over.lines) + 1))
    places = list(dict.fromkeys(point.x for line in over.lines for point in line.points))
    for line, tint in zip(over.lines, told_apart(len(over.lines)), strict=True):
        x = [point.x if over.numeric else places.index(point.x) for point in line.points]
        panel.plot(x, [point.mean.mean for point in line.points], "o-", color=tint, markersize=4, label=line.label)
        low, high = ([getattr(point.mean, side) for point in line.points] for side in ("low", "high"))
        if None not in (*low, *high):
            panel.fill_between(x, low, high, color=tint, alpha=0.15, linewidth=0)
    if not over.numeric:
        panel.set_xticks(range(len(places)), [str(place) for place in places], fontsize=8)
    else:
        if min(places) > 0 and max(places) >= 4 * min(places):
            panel.set_xscale("log", base=2)
            panel.minorticks_off()
        panel.set_xticks(places, [f"{place:g}" for place in places], fontsize=8)
    panel.set_xlabel(over.path, fontsize=9)
    panel.set_ylabel(f"{by} {over.metric}", fontsize=9)
    figure.legend(loc="outside lower left", fontsize=8, frameon=False)
    return figure
