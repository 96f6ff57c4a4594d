"""What a ModelSpec means, written out: two specs with equal facts compute the same function."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from builder.components.position import Position
from builder.layers import Part
from builder.spec import ModelSpec

_TRAINING = re.compile(
    r"^init\.|(^|\.)balance\.|^(train|deploy)_length$"
    r"|(^|\.)(dropout|kernel|jitter|capacity_factor|overflow|dt_min|dt_max|chunk|trained)$"
)
"""What trained weights no longer depend on: how they were drawn, dropped, balanced and computed, and how far used."""
_SECTIONS = ("attention", "ssm", "cross", "ffn", "moe")
_MEANT = {
    **{"n_kv_heads": "kv_heads", "n_key_heads": "key_heads", "d_key": "key_width", "d_value": "value_width"},
    **{"d_inner": "channels", "dt_rank": "rank"},
}
"""Knobs that may be null, and what their Config calls the number that is meant: for every model, or by its d_model."""
_MISSING = object()


class Facts:
    """A spec with nothing left to be inferred, read by dotted path: `facts["attention.n_heads"]`.

    `attention`, `ssm` (a mixer that has no scores), `cross`, `ffn` (a dense one) and `moe` (a mixture of experts) are
    those of the first layer that has one, whatever their slots are called; `layers.3.attention` that of another layer,
    `encoder.attention` that of the tower that reads a source, and `local` the first attention that has a window. Each
    mixer that asks for positions states its own scheme.
    """

    def __init__(self, spec: ModelSpec):
        self.spec = spec
        layers, source = _layers(spec), spec.source
        top = spec.model_dump(mode="json", exclude={"pattern", *spec.slots})
        if top["block"].get("norm") == top["norm"]:
            top["block"]["norm"] = None  # as if left out
        if not any("position" in knobs for parts in layers for kind, knobs in parts.items() if kind != "cross"):
            top["position"] = _embedded(spec)
        top |= {"final_norm": spec.ends_in_norm, "layers": layers}
        top["encoder"] = None if source is None else {"n_layers": source.n_layers, "layers": _layers(source)}
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
        if first == "encoder" and rest:
            return [first, *_below(self.tree["encoder"] or {}, *rest)]
        if first == "local":
            windows = self.each("attention.window")
            local = next((str(layer) for layer, window in enumerate(windows) if window), None)
            return [first] if local is None else ["layers", local, "attention", *rest]
        return _below(self.tree, first, *rest)

    def each(self, path: str, default: Any = None) -> list[Any]:
        """The fact at a path below `attention`, `ssm`, `ffn` or `moe`, for every layer in order."""
        return [self.get(f"layers.{layer}.{path}", default) for layer in range(self.spec.n_layers)]


def _below(tower: Mapping[str, Any], first: str, *rest: str) -> list[str]:
    """A path below a tower, as steps down its tree."""
    holds = (number for number, parts in enumerate(tower.get("layers", ())) if first in parts)
    layer = next(holds, None) if first in _SECTIONS else None
    return [first, *rest] if layer is None else ["layers", str(layer), first, *rest]


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
            short = re.sub(r"^(encoder\.)?layers\.\d+\.", r"\1", path)
            place = training if _TRAINING.search(path) or _TRAINING.search(short) else function
            place[f"{short} is {left}, not {right}"] = None
    return list(function), list(training)


def _follows(path: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a difference follows from one that is named: of the component that the knob belongs to, or one above."""
    steps = path.split(".")
    names = {".".join([*steps[:depth], "name"]) for depth in range(1, len(steps))} - {path}
    return any(name in one and name in other and one[name] != other[name] for name in names)


def _layers(spec: ModelSpec) -> list[dict[str, Any]]:
    return [dict(_part(part, spec) for part in layer.parts) for layer in spec.layers]


def _part(part: Part, spec: ModelSpec) -> tuple[str, dict[str, Any]]:
    """The section that a part of a layer is, and what its knobs mean."""
    if part.kind == "mixer":
        return "attention" if _has_scores(part.config, spec) else "ssm", _mixer(part.config, spec)
    if part.kind == "cross":  # a scheme that it doesn't have is none, and not the model's
        return "cross", _mixer(part.config, spec) | part.config.model_dump(mode="json", include={"position"})
    made = _numbers(part.config, spec)
    return ("moe", made | _balance(made["balance"] or {})) if "n_experts" in made else (part.kind, made)


def _mixer(config: Any, spec: ModelSpec) -> dict[str, Any]:
    """What the knobs of a mixer mean, and those of mixers inside of it."""
    made, scores = _numbers(config, spec), _has_scores(config, spec)
    if scores and "d_head" in made:
        made["scale"] = made.get("scale") or (made["d_head"] + made.get("d_rope", 0)) ** -0.5
    if scores or "position" in made:
        made["position"] = made.get("position") or spec.position.model_dump(mode="json")
    if "norm" in made and "norm" not in getattr(config, "left_out", ()):
        made["norm"] = spec.norm.model_dump(mode="json") if made["norm"] is None else made["norm"]
    inner = {key: value for key, value in config if getattr(getattr(value, "component", None), "part", "") == "mixer"}
    return made | {key: _mixer(value, spec) for key, value in inner.items()}


def _numbers(config: Any, spec: ModelSpec) -> dict[str, Any]:
    """The knobs of a part, those filled in that are null because they follow from others."""
    made: dict[str, Any] = config.model_dump(mode="json")
    if "d_head" in made and "n_heads" in made:
        made["d_head"] = made["d_head"] or spec.d_model // config.n_heads
    for knob, name in _MEANT.items():
        if knob in made and hasattr(config, name):
            meant = getattr(config, name)
            made[knob] = meant(spec.d_model) if callable(meant) else meant
    return made | ({"bias": _bias(made["bias"])} if "bias" in made else {})


def _has_scores(config: Any, spec: ModelSpec) -> bool:
    return config.component.score_width(config, spec.site(0)) is not None


def _embedded(spec: ModelSpec) -> dict[str, Any]:
    """The position scheme of a model whose mixers ask for none: what it writes into the embedding, if it does."""
    writes = spec.position.component.embed is not Position.embed
    return spec.position.model_dump(mode="json") if writes else {"name": "none"}


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
