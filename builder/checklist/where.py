"""Layers in words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from builder.layers import LayerSpec


def where(layers: Sequence[LayerSpec]) -> str:
    """Some layers in words: `layers 0 to 31`, or `10 layers (0 to 4, 6 to 10)`, the first runs of many."""
    numbered = groupby(enumerate(layer.index for layer in layers), key=lambda pair: pair[1] - pair[0])
    runs = [[index for _, index in run] for _, run in numbered]
    shown = [f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
    if len(runs) == 1:
        return f"layer{'s' * (len(layers) > 1)} {shown[0]}"
    return f"{len(layers)} layers ({', '.join([*shown[:3], '...'] if len(runs) > 3 else shown)})"
