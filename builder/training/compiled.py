"""Compilation of the passes that training makes: of the whole model, or of its layers, alike ones sharing the code."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from types import FunctionType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from builder.model.context import Context
from builder.model.language_model import LanguageModel

from .stand_in import Forwards, own_forward

Mode = Literal[False, True, "blocks"]
Backend = str | Callable[..., Any]
_SETTINGS = {"skip_fwd_side_effects_in_bwd_under_checkpoint": True}  # what a recomputed part counts, it counts once
_numbers = count()


def compiled(model: LanguageModel, mode: Mode, backend: Backend = "inductor") -> Forwards:
    """The forwards to stand in while training: none; that of the model; or those of its blocks.

    Whole, the model is one graph, which takes the longer to compile the deeper it is. By blocks, there is one graph for
    each kind of layer that the pattern has, and any number of layers run it; what layers share in a pass, such as the
    angles of positions, each makes for itself. Generation, whose lengths vary, is not compiled by this.
    """
    return _MODES[mode](model, backend)


def _none(model: LanguageModel, backend: Backend) -> Forwards:
    return {}


def _whole(model: LanguageModel, backend: Backend) -> Forwards:
    region = _region(backend)

    def forward(*args: Any, **kwargs: Any) -> Any:
        return region(model, *args, **kwargs)

    return {model: forward}


def _blocks(model: LanguageModel, backend: Backend) -> Forwards:
    blocks: dict[nn.Module, Callable[..., Any]] = {}
    for tower in model.towers.values():
        for alike in tower.spec.kinds.values():
            region = _region(backend)
            blocks |= {block: _apart(region, block) for block in (tower.layers[layer.index] for layer in alike)}
    return blocks


_MODES: dict[Mode, Callable[[LanguageModel, Backend], Forwards]] = {False: _none, True: _whole, "blocks": _blocks}


def _apart(region: Callable[..., Tensor], block: nn.Module) -> Callable[[Tensor, Context], Tensor]:
    def forward(x: Tensor, ctx: Context) -> Tensor:
        return region(block, x, ctx.apart())  # the first layer, which finds nothing made, would need a graph of its own

    return forward


def _region(backend: Backend) -> Callable[..., Any]:
    """`own_forward`, compiled, and by no one else: torch keeps a handful of graphs for each code object and name."""
    code = own_forward.__code__.replace(co_name=f"forward_{next(_numbers)}")
    region = torch.compile(FunctionType(code, own_forward.__globals__), backend=backend)

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._dynamo.config.patch(_SETTINGS):
            return region(*args, **kwargs)

    return run
