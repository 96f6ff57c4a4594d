"""What transforms each position by itself: the contract of a feed-forward part, and its activations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from builder.component import Component, Site
from builder.finding import Finding, Status
from builder.model.context import Context
from builder.model.linear import linear_flops

Activation = Literal["relu", "gelu", "gelu_tanh", "relu_squared", "silu"]


def _relu_squared(x: Tensor) -> Tensor:
    """relu(x)^2 (So et al. 2021, "Primer")."""
    return F.relu(x).square()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu_squared": _relu_squared,
    "silu": F.silu,
}


class FFN(nn.Module, Component):
    """A part of a layer that changes each position alone; built as `FFN(config, site)`."""

    part: ClassVar[str] = "ffn"

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        """x (B, T, D) -> (B, T, D)."""
        raise NotImplementedError

    def flops(self, tokens: int) -> int:
        """FLOPs of a forward pass over one sequence, two for each multiply-add; the checklist counts and compares."""
        return linear_flops(self, tokens)


def inner_width(d_ff: int, matrices: int, activation: str, bias: bool, site: Site) -> Finding:
    """What the checklist says of an ffn's width: d_ff, its ratio to d, and the weights that follow (chapter 3.5)."""
    found = f"d_ff {d_ff} = {d_ff / site.d_model:.3g} d, {activation}, {'with' if bias else 'no'} bias"
    weights = matrices * site.d_model * d_ff
    if d_ff < site.d_model:
        rule = "an ffn narrower than the stream can't carry what it reads"
        return Finding(
            Status.WARN, 1, "d_ff", found, rule, f"d_ff={4 * site.d_model}, or {8 * site.d_model // 3} when gated"
        )
    return Finding(Status.PASS, 1, "d_ff", found, f"{matrices} d d_ff = {weights:,} weights a layer")
