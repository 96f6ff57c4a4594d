"""Say a sequence backwards."""

from __future__ import annotations

import torch
from torch import Tensor

from ...registry import register
from ._sequences import Sequences


@register("data", "reverse")
class Reverse(Sequences):
    """y_i = x_{n + 1 - i}."""

    def answer(self, question: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        places = lengths[:, None] - 1 - torch.arange(question.shape[1])  # (B, N)
        return question.gather(1, places.clamp_min(0)), lengths
