"""Addition modulo a number, learnt from some of its table."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ...errors import Problem
from ...registry import register
from ..draw import Draw
from ..samples import Batch, Shape
from ..tasks import Ids
from . import TaskSource


@register("data", "modular_addition")
class ModularAddition(TaskSource):
    """a b > c with c = (a + b) mod n_symbols, of which c is counted.

    `val_fraction` of the n_symbols^2 ordered pairs are never trained on; b a may be where a b is not.
    Power et al. 2022, "Grokking: generalization beyond overfitting on small algorithmic datasets", arXiv 2201.02177.
    """

    def problems(self, shape: Shape) -> Iterable[Problem]:
        if shape.width < 4:
            least = 4 - shape.ahead
            yield Problem("model.train_length", str(shape.length), "a row is a b > c", f"model.train_length={least}")

    def rows(self, draw: Draw, shape: Shape, ids: Ids) -> Batch:
        p = self.config.n_symbols
        pair = draw.below(p, 2)  # (B, 2)
        mark = torch.full_like(pair[:, :1], ids.mark)
        tokens = torch.cat([pair, mark, pair.sum(1, keepdim=True) % p], 1)  # (B, 4)
        counted = torch.zeros_like(tokens, dtype=torch.bool)
        counted[:, -1] = True
        return {"tokens": tokens, "counted": counted}
