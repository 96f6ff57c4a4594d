"""The plain recurrent network: one layer of tanh or ReLU between what was read and what is read next."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from builder.component import Site
from builder.components.recurrent import Recurrent, RecurrentConfig
from builder.registry import register

_KERNELS = {"tanh": torch.rnn_tanh, "relu": torch.rnn_relu}


@register("recurrent", "rnn")
class RNN(Recurrent):
    """h_t = f(W x_t + b + U h_{t-1} + c), y_t = h_t W_o (Elman 1990): H D + H^2 + 2 H + H D weights."""

    gates = 1

    class Config(RecurrentConfig):
        """`activation` is f: tanh, or ReLU, which nothing bounds (Le et al. 2015)."""

        name: str = "rnn"
        activation: Literal["tanh", "relu"] = "tanh"

    def __init__(self, config: RNN.Config, site: Site):
        super().__init__(config, site)
        self.kernel = _KERNELS[config.activation]

    def run(self, x: tuple[Any, ...], carried: list[Tensor], told: tuple[Any, ...]) -> tuple[Tensor, ...]:
        return self.kernel(*x, *carried, *told)
