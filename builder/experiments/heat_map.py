"""A picture of where tokens went: layers by experts, white where the load is even."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import IO, Any

import torch
from torch import Tensor

from .load import Load

_SPAN = 4.0
"""The scale goes from a quarter of the even load to four times it, in every picture, so that pictures compare."""

_TICKS = {0.25: "¼", 0.5: "½", 1.0: "even", 2.0: "2", 4.0: "4"}
_DEAD = "#ffd500"  # neither red nor blue, and seen where a cell is too small for a cross
_DPI = 120

# Inches.
_GRID = (11.0, 9.0)  # that all cells together may take, across and down,
_LEAST = (2.8, 1.4)  # and that they take at least
_CELL = (0.62, 0.38)  # that one cell takes when there is room
_NUMBER, _ROW = 0.36, 0.14  # that a number in a cell needs across, and a label beside a row down
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.65, 1.65, 0.6, 0.6
_BAR = (0.9, 0.16)  # from the cells to the colours, and their width


def draw(loads: Mapping[int, Load], title: str, file: IO[bytes]) -> None:
    """Writes the load of every expert, by the number of its layer, to `file` as a PNG."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    layers = sorted(loads)
    ratios = _grid([loads[layer].ratios for layer in layers])  # (L, X)
    across, down = (
        max(min(cell * count, most), least)
        for cell, count, most, least in zip(_CELL, reversed(ratios.shape), _GRID, _LEAST, strict=True)
    )
    width, height = _LEFT + across + _RIGHT, _BOTTOM + down + _TOP
    figure = Figure((width, height), dpi=_DPI)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((_LEFT / width, _BOTTOM / height, across / width, down / height))
    beside = figure.add_axes(((_LEFT + across + _BAR[0]) / width, _BOTTOM / height, _BAR[1] / width, down / height))

    norm = LogNorm(1 / _SPAN, _SPAN)  # half the load is as far from even as twice the load
    colours = colormaps["RdBu_r"].with_extremes(under=_DEAD)
    shades = ratios.clamp(1 / _SPAN, _SPAN).masked_fill(ratios == 0, 1e-9)
    image = axes.imshow(shades.numpy(), cmap=colours, norm=norm, aspect="auto", interpolation="none")
    axes.set_facecolor("0.85")  # where a layer has no such expert
    axes.set_title(f"{title}\nload of an expert over the even load; × never chosen", fontsize=9, loc="left")
    rows, columns = ratios.shape
    _mark_dead(axes, ratios, 72 * min(across / columns, down / rows))
    if across / columns >= _NUMBER and down / rows >= _ROW:
        _write_numbers(axes, ratios)
    _label(axes, layers, [loads[layer].max_over_mean for layer in layers], every=math.ceil(_ROW * rows / down))
    bar = figure.colorbar(image, cax=beside, extend="min", extendfrac=0.1 / down)
    bar.set_ticks(list(_TICKS), labels=list(_TICKS.values()), fontsize=8)
    bar.minorticks_off()
    canvas.print_png(file)


def _grid(ratios: list[Tensor]) -> Tensor:
    """The rows (X,) below each other, NaN where one is shorter than the longest."""
    grid = torch.full((len(ratios), max(map(len, ratios))), math.nan, dtype=torch.float64)
    for row, values in zip(grid, ratios, strict=True):
        row[: len(values)] = values
    return grid


def _mark_dead(axes: Any, ratios: Tensor, room: float) -> None:
    """A cross in each cell whose expert nobody chose; a cell has `room` points."""
    rows, columns = (ratios == 0).nonzero(as_tuple=True)
    size = min(0.5 * room, 12)
    axes.scatter(columns.numpy(), rows.numpy(), s=size**2, marker="x", color="k", linewidths=max(size / 8, 0.4))


def _write_numbers(axes: Any, ratios: Tensor) -> None:
    for row, values in enumerate(ratios.tolist()):
        for column, value in enumerate(values):
            if value > 0:
                dark = abs(math.log(value)) > 0.55 * math.log(_SPAN)
                colour = "white" if dark else "black"
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)


def _label(axes: Any, layers: list[int], worst: list[float], every: int) -> None:
    """Writes which layer every so many rows is, and on the right how far its busiest expert is above the mean."""
    rows = range(0, len(layers), every)
    right = axes.secondary_yaxis("right")
    axes.set_yticks(rows, [str(layers[row]) for row in rows], fontsize=8)
    right.set_yticks(rows, [f"{worst[row]:.2f}" for row in rows], fontsize=8)
    for side, name in ((axes, "layer"), (right, "max / mean")):
        side.tick_params(axis="y", length=0)
        side.set_ylabel(name, fontsize=9)
    axes.set_xlabel("expert", fontsize=9)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.tick_params(axis="x", labelsize=8)
