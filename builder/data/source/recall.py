"""Multi-query associative recall: say again, for each key that comes up, the value that stood behind it."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from pydantic import Field, PositiveInt

from ...errors import Problem
from ...registry import register
from ..draw import Draw
from ..samples import Batch, Shape
from ..tasks import Ids
from . import TaskSource


@register("data", "recall")
class Recall(TaskSource):
    """MQAR of Arora et al. 2024 ("Zoology: Measuring and improving recall in efficient language models", arXiv
    2312.04927), rows of model.train_length tokens:

        k_1 v_1 k_2 v_2 .. k_n v_n  . . k_2 v_2 . . . . k_1 v_1 . .      the values behind a repeated key are counted

    Keys are distinct symbols of the lower half, values distinct ones of the upper. Each key is asked for once, in one
    of the places 1, 2, .. of two tokens behind the pairs, taken in proportion to place^(power - 1): most soon, some
    late. What stands between is drawn from the values, so that no key comes up that is not asked for; the paper draws
    it from all symbols.
    """

    class Config(TaskSource.Config):
        """`n_pairs` keys with their values; `power` 1 asks for them anywhere alike."""

        n_pairs: PositiveInt = 8
        power: float = Field(default=0.01, gt=0)

    config: Config

    def problems(self, shape: Shape) -> Iterable[Problem]:
        pairs, symbols = self.config.n_pairs, self.config.n_symbols
        if 4 * pairs > shape.length:
            rule = "a pair takes 2 tokens where it is told and 2 where it is asked for"
            fix = f"data.n_pairs={shape.length // 4} or less, or model.train_length={4 * pairs} or more"
            yield Problem("data.n_pairs", f"{pairs}, in rows of model.train_length={shape.length}", rule, fix)
        if symbols < 2 * pairs:
            rule = "half of the symbols are keys, and all keys of a row differ"
            yield Problem("data.n_symbols", f"{symbols}, for {pairs} pairs", rule, f"data.n_symbols={2 * pairs}")

    def rows(self, draw: Draw, shape: Shape, ids: Ids) -> Batch:
        n, half = self.config.n_pairs, self.config.n_symbols // 2
        upper = self.config.n_symbols - half
        keys, values = draw.distinct(half, n), half + draw.distinct(upper, n)  # (B, N)
        places = torch.arange(1, (shape.length - 2 * n) // 2 + 1, dtype=torch.float64)
        asked = 2 * n + 2 * draw.weighted(places ** (self.config.power - 1), n)  # (B, N)
        tokens = half + draw.below(upper, shape.width)  # (B, W)
        tokens[:, : 2 * n] = torch.stack([keys, values], 2).flatten(1)  # (B, 2N)
        tokens.scatter_(1, asked, keys).scatter_(1, asked + 1, values)
        counted = torch.zeros_like(tokens, dtype=torch.bool).scatter_(1, asked + 1, True)
        return {"tokens": tokens, "counted": counted}
