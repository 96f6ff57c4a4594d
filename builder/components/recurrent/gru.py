"""The gated recurrent unit: a gate decides how much of what is carried stays, and one how much of it is read."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from builder.components.recurrent import Recurrent, RecurrentConfig
from builder.registry import register


@register("recurrent", "gru")
class GRU(Recurrent):
    """h_t = (1 - z_t) n_t + z_t h_{t-1}, y_t = h_t W_o (Cho et al. 2014), the gates stacked in the order r, z, n:

        r_t, z_t = sigmoid(W x_t + b + U h_{t-1} + c)      n_t = tanh(W x_t + b + r_t (U h_{t-1} + c))

    r_t times the map of what is carried, as torch and cuDNN have it.
    """

    gates = 3

    class Config(RecurrentConfig):
        """`d_hidden`, and nothing beside."""

        name: str = "gru"

    def run(self, x: tuple[Any, ...], carried: list[Tensor], told: tuple[Any, ...]) -> tuple[Tensor, ...]:
        return torch.gru(*x, *carried, *told)
