"""Where something stands: layers in words, and the config path of a module or parameter."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from builder.layers import LayerSpec
from builder.spec import ModelSpec


def where(layers: Sequence[LayerSpec]) -> str:
    """Some layers in words: `layers 0 to 31`, or `10 layers (0 to 4, 6 to 10)`, the first runs of many."""
    numbered = groupby(enumerate(layer.index for layer in layers), key=lambda pair: pair[1] - pair[0])
    runs = [[index for _, index in run] for _, run in numbered]
    shown = [f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
    if len(runs) == 1:
        return f"layer{'s' * (len(layers) > 1)} {shown[0]}"
    return f"{len(layers)} layers ({', '.join([*shown[:3], '...'] if len(runs) > 3 else shown)})"


def path_of(spec: ModelSpec, name: str) -> str:
    """The config path of what a module or parameter of the model belongs to, such as layers.3.mixer.q.weight."""
    within, _, rest = name.partition(".")
    first, _, rest = (rest if within in spec.towers else name).partition(".")
    if first == "positions":
        scheme = rest.partition(".")[0]
        return "model.position" if scheme == "model" else f"model.{scheme}.position"
    if first != "layers":
        return "model.norm" if first.endswith("norm") else f"model.{first}".rstrip(".")
    index, _, part = rest.partition(".")
    kind = part.partition(".")[0]
    slot = spec.towers.get(within, spec).layers[int(index)].part(kind)
    own = "model.norm" if kind.endswith("norm") and getattr(spec.block, "norm", None) is None else "model.block"
    return own if slot is None else f"model.{slot.slot}"
