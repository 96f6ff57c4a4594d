"""What a YAML says of a component: the slot that tests build, so that a new component is tested by existing."""

from functools import cache
from typing import Any

from builder import compose, registry

SIZES = ("model.d_model=32", "model.attention.n_heads=4")
# what else is narrow, of those that have more to be narrowed
NARROW = {
    ("ffn", "glu"): ("model.ffn.d_ff=48",),
    ("ffn", "mlp"): ("model.ffn.d_ff=48",),
    ("ffn", "moe"): ("model.ffn.expert.d_ff=24",),
}


def mixers(*rooms: str) -> list[str]:
    """The names of those rooms whose components may be the mixer of a layer."""
    return [name for room in rooms for name in registry.names(room) if registry.find(room, name).part == "mixer"]


@cache
def _slot(room: str, name: str) -> dict[str, Any]:
    added = "" if room in _decoder() else f"@model.{room}"  # a slot that a plain decoder doesn't have
    return compose([f"model/{room}{added}={name}", *SIZES, *NARROW.get((room, name), ())])["model"][room]


@cache
def _decoder() -> dict[str, Any]:
    return compose()["model"]


def slot(room: str, name: str, **knobs: Any) -> dict[str, Any]:
    """The slot of conf/model/<room>/<name>.yaml in a model of width 32 with 4 heads and d_ff 48, and `knobs` on top."""
    return {**_slot(room, name), **knobs}


def mixer_slots() -> dict[str, dict[str, Any]]:
    """The slot of every mixer there is, by `room/name`, and of attentions that see a few tokens only."""
    every = {f"{room}/{name}": slot(room, name) for room in ("attention", "ssm", "recurrent") for name in mixers(room)}
    return every | {f"attention/{name} of a window": slot("attention", name, window=3) for name in ("gqa", "mla")}
