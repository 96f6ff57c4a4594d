"""The linear map that components are made of: torch's own, which knows what its weight is for."""

from __future__ import annotations

from typing import Literal

from torch import nn


class Linear(nn.Linear):
    """y = x W^T + b. The `role` tells initialisation what W does: `matrix`; `residual` if it writes to the stream;
    `readout` if d_out is a number of things, such as experts, that a wider model has no more of.

    The residual stream is the running sum x that every part of a layer reads and adds to (chapter 3.5).
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        bias: bool = False,
        role: Literal["matrix", "residual", "readout"] = "matrix",
    ) -> None:
        super().__init__(d_in, d_out, bias=bias)
        self.roles = {"weight": role, "bias": "bias"}

    def reset_parameters(self) -> None:
        """Nothing: the model's `init` draws every weight, once, after assembly."""


def linear_flops(module: nn.Module, tokens: int) -> int:
    """FLOPs of every linear map inside a module, each applied once to each of `tokens`: 2 d_in d_out a token."""
    return sum(2 * tokens * part.weight.numel() for part in module.modules() if isinstance(part, nn.Linear))
