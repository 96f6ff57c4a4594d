"""What transforms each position by itself: the contract of a feed-forward part, and its activations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from builder.component import Component
from builder.model.context import Context

Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


class FFN(nn.Module, Component):
    """A part of a layer that changes each position alone; built as `FFN(config, site)`."""

    part: ClassVar[str] = "ffn"

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        """x (B, T, D) -> (B, T, D)."""
        raise NotImplementedError
