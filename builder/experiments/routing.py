"""Where tokens went in the end, for a terminal: a line for each layer with experts, and what came of not balancing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from builder.spec import ModelSpec

from .load import some_of

UNEVEN = 1.5
"""The load of the busiest expert over the mean from which a layer that nothing balances is told of."""


def render(routing: Mapping[str, Any], model: ModelSpec) -> RenderableType:
    """A rich renderable of what summary.json says of routing."""
    layers = routing["layers"]
    table = Table(
        title="Routing up to the last log line",
        title_style="bold",
        title_justify="left",
        box=None,
        padding=(0, 2, 0, 0),
    )
    for head in ("layer", "max/mean", "entropy", "dropped", "dead"):
        table.add_column(head, justify="right")
    for layer in some_of(layers):
        table.add_row(str(layer), *_cells(layers[layer]))
    if len(layers) > 1:
        table.add_row(f"all {len(layers)}", *_cells(routing["all"]), style="bold")
    return Group(table, *(Text(sentence, style="yellow") for sentence in _unbalanced(layers, model)))


def _cells(figures: Mapping[str, Any]) -> list[str]:
    forms = {"max_over_mean": "{:.2f}", "entropy": "{:.3f}", "dropped": "{:.1%}", "dead": "{:.0f}"}
    return ["-" if figures[name] is None else form.format(figures[name]) for name, form in forms.items()]


def _unbalanced(layers: Mapping[int, Any], model: ModelSpec) -> list[str]:
    """One sentence, if experts that nothing balances, as was asked for, are unevenly loaded."""
    ffns = [(layer.index, part.config) for layer in model.layers if (part := layer.part("ffn")) is not None]
    left_alone = {layer for layer, config in ffns if config.component.left_unbalanced(config)}
    uneven = {n: layers[n] for n in layers if n in left_alone and (layers[n]["max_over_mean"] or 0) >= UNEVEN}
    if not uneven:
        return []
    worst = max(uneven, key=lambda layer: uneven[layer]["max_over_mean"])
    dead = sum(figures["dead"] for figures in uneven.values())
    most = f"the busiest expert of layer {worst} got {uneven[worst]['max_over_mean']:.2f} times its even share"
    others = f", {len(uneven)} layers stand at {UNEVEN:g} or more" if len(uneven) > 1 else ""
    idle = f", and {dead} expert{'s' if dead > 1 else ''} got nothing" if dead else ""
    return [f"balance is off, as asked for: {most}{others}{idle}"]
