"""The long short-term memory: a cell that is only added to and scaled, behind gates."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from builder.components.recurrent import Recurrent, RecurrentConfig
from builder.registry import register


@register("recurrent", "lstm")
class LSTM(Recurrent):
    """h_t = o_t tanh(c_t), c_t = f_t c_{t-1} + i_t g_t, y_t = h_t W_o (Hochreiter & Schmidhuber 1997; Gers et al. 2000)

        i_t, f_t, o_t = sigmoid(W x_t + b + U h_{t-1} + c)      g_t = tanh(W x_t + b + U h_{t-1} + c)

    stacked in the order i, f, g, o. The state holds both.
    """

    gates = 4
    carries = ("hidden", "cell")

    class Config(RecurrentConfig):
        """`forget_bias` is what the bias of f starts from: at 1 a cell keeps most at first (Jozefowicz et al. 2015)."""

        name: str = "lstm"
        forget_bias: float = 1.0

    @classmethod
    def opened(cls, config: LSTM.Config) -> dict[int, float]:
        return {1: config.forget_bias}

    def run(self, x: tuple[Any, ...], carried: list[Tensor], told: tuple[Any, ...]) -> tuple[Tensor, ...]:
        return torch.lstm(*x, carried, *told)  # type: ignore[call-overload]
