"""Say a sequence again."""

from __future__ import annotations

from torch import Tensor

from ...registry import register
from ._sequences import Sequences


@register("data", "copy")
class Copy(Sequences):
    """y_i = x_i (Graves et al. 2014, "Neural Turing machines", arXiv 1410.5401)."""

    def answer(self, question: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return question, lengths
