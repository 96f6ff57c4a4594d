"""What a YAML says of a component: the slot that tests build, so that a new component is tested by existing."""

from functools import cache
from typing import Any

from builder import compose

SIZES = ("model.d_model=32", "model.attention.n_heads=4")
# what else is narrow, of those that have more to be narrowed
NARROW = {
    ("ffn", "glu"): ("model.ffn.d_ff=48",),
    ("ffn", "mlp"): ("model.ffn.d_ff=48",),
    ("ffn", "moe"): ("model.ffn.expert.d_ff=24",),
}


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
