"""Induction: say again what stood behind the mark when it was there before."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ...errors import Problem
from ...registry import register
from ..draw import Draw
from ..samples import Batch, Shape
from ..tasks import Ids
from . import TaskSource


@register("data", "induction")
class Induction(TaskSource):
    """Rows of model.train_length tokens, symbols at random but for a mark in two places:

        . . . > y . . . . >  y       only the last is counted

    The induction heads of Fu et al. 2023 ("Hungry hungry hippos", arXiv 2212.14052); Gu & Dao 2023 (Mamba, arXiv
    2312.00752) measure on it how far a model goes beyond the length of its training.
    """

    def problems(self, shape: Shape) -> Iterable[Problem]:
        if shape.width < 4:
            least = 4 - shape.ahead
            rule = "the mark and what stands behind it, twice"
            yield Problem("model.train_length", str(shape.length), rule, f"model.train_length={least} or more")

    def rows(self, draw: Draw, shape: Shape, ids: Ids) -> Batch:
        tokens = draw.below(self.config.n_symbols, shape.width)  # (B, W)
        place = draw.below(shape.width - 3, 1)  # (B, 1)
        tokens.scatter_(1, place, ids.mark)
        tokens[:, -2] = ids.mark
        tokens[:, -1:] = tokens.gather(1, place + 1)
        counted = torch.zeros_like(tokens, dtype=torch.bool)
        counted[:, -1] = True
        return {"tokens": tokens, "counted": counted}
