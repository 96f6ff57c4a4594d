"""Say the symbols of a sequence from the smallest to the largest."""

from __future__ import annotations

import torch
from torch import Tensor

from ...registry import register
from ._sequences import Sequences


@register("data", "sort")
class Sort(Sequences):
    """y_1 <= y_2 <= .. are the x_i, each as often as it stands there (Graves et al. 2014, arXiv 1410.5401)."""

    def answer(self, question: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        asked = torch.arange(question.shape[1]) < lengths[:, None]  # (B, N)
        return question.masked_fill(~asked, self.config.n_symbols).sort().values, lengths
