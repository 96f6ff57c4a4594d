"""Activation checkpointing: parts of layers that keep their input alone, and compute the rest again for gradients."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from builder.model.context import Aux, Context
from builder.model.language_model import LanguageModel

from .stand_in import Forwards, own_forward


def recompute(model: LanguageModel, slots: Collection[str]) -> Forwards:
    """The forwards of every part in one of the pattern's `slots`, to stand in where gradients are wanted.

    From forward to backward pass such a part holds x (B, T, D) alone, and then it runs once more (Chen et al. 2016,
    "Training Deep Nets with Sublinear Memory Cost"). Numbers stay what they are, drawn ones too.
    """
    chosen = [(block, part.kind) for layer, block in model.blocks() for part in layer.parts if part.slot in slots]
    return {part: _again(part) for part in (block.get_submodule(kind) for block, kind in chosen)}


def _again(part: nn.Module) -> Callable[[Tensor, Context], Tensor]:
    def forward(x: Tensor, ctx: Context) -> Tensor:
        if not torch.is_grad_enabled():
            return own_forward(part, x, ctx)
        before = ctx.apart()  # both runs find made what this one finds, and make the rest

        def run(x: Tensor) -> tuple[Any, ...]:
            told = ctx.aux.empty()  # what the second run reports, nobody reads
            y = own_forward(part, x, replace(before.apart(), aux=told))
            return y, told.losses, told.stats, told.tallies, told.shapes

        y, *told = checkpoint(run, x, use_reentrant=False)  # type: ignore[misc]
        ctx.aux.add(Aux(*told))
        return y

    return forward
