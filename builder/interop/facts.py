"""What a ModelSpec means, written out: two specs with equal facts compute the same function."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from builder.layers import LayerSpec
from builder.spec import ModelSpec

_TRAINING = re.compile(
    r"^init\.|(^|\.)(dropout|kernel|jitter|capacity_factor|overflow)$|(^|\.)balance\.|^(train|deploy)_length$"
)
"""What trained weights no longer depend on: how they were drawn, dropped, balanced and computed, and how far used."""
_MISSING = object()


class Facts:
    """A spec with nothing left to be inferred, read by dotted path: `facts["attention.n_heads"]`.

    `attention`, `ffn` (a dense one) and `moe` (a mixture of experts) are those of the first layer that has one,
    whatever their slots are called; `layers.3.attention` that of another layer, and `local` the first attention that
    has a window. Each attention states its own position scheme.
    """

    def __init__(self, spec: ModelSpec):
        self.spec = spec
        layers = [_layer(layer, spec) for layer in spec.layers]
        top = spec.model_dump(mode="json", exclude={"pattern", *spec.slots})
        if top["block"].get("norm") == top["norm"]:
            top["block"]["norm"] = None  # as if left out
        top |= {"final_norm": spec.ends_in_norm, "layers": layers}
        self.tree = _with_lengths(top, spec.train_length)

    def __getitem__(self, path: str) -> Any:
        value = self.get(path, _MISSING)
        if value is _MISSING:
            raise KeyError(path)
        return value

    def get(self, path: str, default: Any = None) -> Any:
        """The fact at a dotted path, `default` where this model has no such knob."""
        node: Any = self.tree
        for step in self._steps(*path.split(".")):
            if isinstance(node, list):
                node = node[int(step)]
            else:
                node = node.get(step, _MISSING) if isinstance(node, Mapping) else _MISSING
        return default if node is _MISSING else node

    def _steps(self, first: str, *rest: str) -> list[str]:
        """A path of facts, as steps down the tree."""
        if first in ("attention", "ffn", "moe"):
            layer = next((number for number, parts in enumerate(self.tree["layers"]) if first in parts), None)
            return [first] if layer is None else ["layers", str(layer), first, *rest]
        if first == "local":
            windows = self.each("attention.window")
            local = next((str(layer) for layer, window in enumerate(windows) if window), None)
            return [first] if local is None else ["layers", local, "attention", *rest]
        return [first, *rest]

    def each(self, path: str, default: Any = None) -> list[Any]:
        """The fact at a path below `attention`, `ffn` or `moe`, for every layer in order."""
        return [self.get(f"layers.{layer}.{path}", default) for layer in range(self.spec.n_layers)]


def differences(wanted: Facts, got: Facts) -> tuple[list[str], list[str]]:
    """Where `got` isn't `wanted`, as sentences: what changes the function, and what only training would notice.

    Layers that differ alike are named once, and of a slot with another component in it only the name.
    """
    one, other = dict(_leaves(wanted.tree)), dict(_leaves(got.tree))
    function: dict[str, None] = {}
    training: dict[str, None] = {}
    for path in [*one, *(path for path in other if path not in one)]:
        left, right = one.get(path), other.get(path)
        if not _close(left, right) and not _follows(path, one, other):
            short = re.sub(r"^layers\.\d+\.", "", path)
            place = training if _TRAINING.search(path) or _TRAINING.search(short) else function
            place[f"{short} is {left}, not {right}"] = None
    return list(function), list(training)


def _follows(path: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a difference follows from one that is named: of the component that the knob belongs to, or one above."""
    steps = path.split(".")
    names = {".".join([*steps[:depth], "name"]) for depth in range(1, len(steps))} - {path}
    return any(name in one and name in other and one[name] != other[name] for name in names)


def _layer(layer: LayerSpec, spec: ModelSpec) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for part in layer.parts:
        config: Any = part.config
        made = config.model_dump(mode="json")
        if "n_kv_heads" in made:
            made["n_kv_heads"] = config.kv_heads
        if "d_head" in made and "n_heads" in made:
            made["d_head"] = made["d_head"] or spec.d_model // config.n_heads
            made["scale"] = made.get("scale") or (made["d_head"] + made.get("d_rope", 0)) ** -0.5
        if "d_value" in made:
            made["d_value"] = made["d_value"] or made["d_head"]
        if "bias" in made:
            made["bias"] = _bias(made["bias"])
        if part.kind == "mixer":
            made["position"] = made.get("position") or spec.position.model_dump(mode="json")
        if part.kind == "mixer" and "norm" in made:
            made["norm"] = made["norm"] or spec.norm.model_dump(mode="json")
        if "n_experts" in made:
            made |= _balance(made["balance"] or {})
        parts["attention" if part.kind == "mixer" else "moe" if "n_experts" in made else part.kind] = made
    return parts


def _balance(stated: Mapping[str, float]) -> dict[str, Any]:
    """How a mixture is balanced, and what that leaves in the trained model: a preference for each expert, or none."""
    told = {"aux_loss": 0.0} | {key: value for key, value in stated.items() if value}
    return {"balance": told, "preference": bool(told.get("bias_speed"))}


def _bias(value: Any) -> Any:
    """Which projections of an attention have a bias: a list of all four is true, an empty one is false."""
    if isinstance(value, bool):
        return value
    return sorted(value) if 0 < len(set(value)) < 4 else bool(value)


def _with_lengths(node: Any, length: int) -> Any:
    """`node` with the lengths that are null, which stand for the train length, filled in."""
    if isinstance(node, Mapping):
        meant = {key: length for key in ("length", "original_length") if key in node and node[key] is None}
        return {key: _with_lengths(value, length) for key, value in node.items()} | meant
    return [_with_lengths(value, length) for value in node] if isinstance(node, list | tuple) else node


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    inner = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else None
    if inner is None:
        yield path, node
    for key, value in inner or ():
        yield from _leaves(value, f"{path}.{key}" if path else str(key))


def _close(one: Any, other: Any) -> bool:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other))
    return math.isclose(one, other, rel_tol=1e-9) if numbers else one == other
