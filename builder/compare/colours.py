"""One colour for each configuration, the same in every picture and on the page."""

from __future__ import annotations

from collections.abc import Sequence

from .comparison import Row

LEGEND = 10
"""A legend names so many configurations, the first; more would hide the picture."""

_FEW = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2", "#bcbd22", "#7f7f7f")


_NOTHING = "#999999"


def colours(rows: Sequence[Row]) -> list[str]:
    """A colour for each row: told apart at sight where few have anything to show, else along a scale from the first
    rank to the last."""
    tints = iter(told_apart(sum(row.shows for row in rows)))
    return [next(tints) if row.shows else _NOTHING for row in rows]


def told_apart(count: int) -> list[str]:
    """So many colours: told apart at sight where they are few, else along a scale."""
    if count <= len(_FEW):
        return list(_FEW[:count])
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    scale = colormaps["viridis"]
    return [to_hex(scale(0.95 * place / (count - 1))) for place in range(count)]
