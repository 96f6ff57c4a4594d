"""A picture of the coordinate check: size against width, a panel a step; level lines are what mu-P promises."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from torch import Tensor

from builder.errors import ArchlabError
from builder.whole import whole

from .result import Coordinates, Verdict
from .trace import Quantity

_PANEL = (2.3, 2.5)  # inches across and down
_MARGIN = (1.0, 1.1)
_DPI = 120
_FAINTEST = 0.35  # the opacity of the first layer; the last is opaque
_NAMES = ("mean |x|", "mean |x − x₀|")


def write(found: Coordinates, title: str, root: str) -> Path:
    """Draws <root>/coordinates.png; raises ArchlabError where that can't be written."""
    path = Path(root, "coordinates.png")
    try:
        with whole(path, "wb") as file:
            draw(found, title, file)
    except OSError as error:
        raise ArchlabError(
            f"output.root: {path} can't be written ({error.strerror}); choose another output.root"
        ) from None
    return path


def draw(found: Coordinates, title: str, file: IO[bytes]) -> None:
    """Writes sizes above and moves below, by width, after each step, to `file` as a PNG; both axes are logarithmic."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = next(iter(found.sizes.values())).shape[-1]
    figure = Figure((_PANEL[0] * panels + _MARGIN[0], _PANEL[1] * 2 + _MARGIN[1]), dpi=_DPI, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    grid: Any = figure.subplots(2, panels, sharex=True, sharey="row", squeeze=False)
    for row, values in enumerate((found.sizes, found.moves)):
        for step in range(row, panels):
            _panel(grid[row][step], found.widths, values, step)
            grid[row][step].set_title(f"after {step} step{'s' * (step != 1)}", fontsize=9)
        grid[row][row].set_ylabel(_NAMES[row], fontsize=9)
        grid[row][row].tick_params(labelleft=True)
    for axes in (grid[0][0], *grid[1][1:]):
        axes.tick_params(labelbottom=True)
        axes.set_xlabel("d_model", fontsize=9)
    _legend(grid[1][0], found)
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    canvas.print_png(file)


def _panel(axes: Any, widths: tuple[int, ...], values: Mapping[Quantity, Tensor], step: int) -> None:
    for quantity, (colour, opacity) in _looks(values).items():
        line = values[quantity][..., step].mean(1)  # (W,)
        axes.plot(widths, line.numpy(), color=colour, alpha=opacity, marker="o", markersize=3, linewidth=1.3)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(widths, [str(width) for width in widths], fontsize=8)
    axes.tick_params(axis="y", labelsize=8)
    axes.minorticks_off()
    axes.grid(axis="y", color="0.9", linewidth=0.6)


def _looks(values: Mapping[Quantity, Tensor]) -> dict[Quantity, tuple[str, float]]:
    """A colour for each kind, the fainter the nearer a layer is to the first."""
    kinds = list(dict.fromkeys(quantity.what for quantity in values))
    deepest = max((quantity.layer or 0 for quantity in values), default=0) or 1
    looks = {}
    for quantity in values:
        depth = 1.0 if quantity.layer is None else quantity.layer / deepest
        looks[quantity] = f"C{kinds.index(quantity.what) % 10}", _FAINTEST + (1 - _FAINTEST) * depth
    return looks


def _legend(axes: Any, found: Coordinates) -> None:
    """The colours, where no moves are to be drawn, with the worst verdict of each kind."""
    from matplotlib.lines import Line2D

    looks = _looks(found.sizes)
    lines = [Line2D([], [], color=looks[verdict.quantity][0], label=_label(verdict)) for verdict in found.steepest]
    axes.axis("off")
    axes.legend(handles=lines, loc="center", fontsize=8, frameon=False, title="fainter: nearer the first layer")
    axes.get_legend().get_title().set_fontsize(8)


def _label(verdict: Verdict) -> str:
    return f"{verdict.quantity.what}: {verdict.status}"
