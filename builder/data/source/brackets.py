"""Close the brackets that are still open."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from ...errors import Problem
from ...registry import register
from ..draw import Draw
from ..samples import Shape
from ._sequences import Sequences


@register("data", "brackets")
class Brackets(Sequences):
    """The beginning of a word of the Dyck language of n_symbols / 2 kinds of brackets; the answer ends it:

        0 2 3 4 5 0 > 1 1        kind i opens as 2 i and closes as 2 i + 1; the innermost is closed first

    How deep it is nested is the distance from 0 of a random walk of steps 1 and -1; kinds are drawn alike (the
    language: Hewitt et al. 2020, "RNNs can generate bounded hierarchical languages", arXiv 2010.07515).
    """

    def problems(self, shape: Shape) -> Iterable[Problem]:
        yield from super().problems(shape)
        if self.config.n_symbols % 2:
            found, rule = str(self.config.n_symbols), "two symbols for each kind of bracket"
            yield Problem("data.n_symbols", found, rule, f"data.n_symbols={self.config.n_symbols + 1}")

    def question(self, draw: Draw, lengths: Tensor, most: int) -> Tensor:
        depth = (2 * draw.below(2, most) - 1).cumsum(1).abs()  # (B, N)
        opens = depth > torch.nn.functional.pad(depth, (1, 0))[:, :-1]  # (B, N)
        kinds = draw.below(self.config.n_symbols // 2, most)  # (B, N)
        order, same = _by_level(depth, opens)
        closed = kinds.gather(1, order)  # (B, N), level by level
        closed = torch.where(same, closed.roll(1, 1), closed)  # a closing bracket is of the kind that it closes
        kinds = torch.where(opens, kinds, torch.empty_like(kinds).scatter(1, order, closed))
        return 2 * kinds + (~opens).long()

    def answer(self, question: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        asked = torch.arange(question.shape[1]) < lengths[:, None]  # (B, N)
        opens = (question % 2 == 0) & asked
        depth = torch.where(asked, torch.where(opens, 1, -1), 0).cumsum(1)  # (B, N)
        # What is closed before a place stands deeper: a bracket stays open where nothing behind it is as shallow.
        later = torch.where(asked, depth, question.shape[1]).flip(1).cummin(1).values.flip(1)  # (B, N)
        left = opens & (later >= depth)  # (B, N)
        behind = left.flip(1)
        last_first = (~behind).long().sort(stable=True).indices  # (B, N)
        return question.flip(1).gather(1, last_first) + 1, left.sum(1)


def _by_level(depth: Tensor, opens: Tensor) -> tuple[Tensor, Tensor]:
    """Brackets level by level, where each that opens one stands before the one that closes it: (their places (B, N),
    whether one closes what stands before it (B, N))."""
    level = torch.where(opens, depth, depth + 1)  # (B, N)
    order = level.sort(stable=True).indices  # (B, N)
    return order, ~opens.gather(1, order)
