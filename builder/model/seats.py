"""Capacity: how many tokens an expert takes in one pass, and what becomes of those that find it full (chapter 3.9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeVar

import torch
from torch import Tensor

from .dispatch import count

Overflow = Literal["drop", "reroute", "expand"]
T = TypeVar("T", int, Tensor)


def capacity(tokens: int, top_k: int, n_experts: int, factor: float) -> int:
    """C = ceil(factor N k / X), at least one token and at most all of them (Fedus et al. 2021, section 2.2)."""
    return min(max(_share(tokens, top_k, n_experts, factor), 1), max(tokens, 1))


def _share(tokens: T, top_k: int, n_experts: int, factor: float) -> T:
    """ceil(factor N k / X) in whole numbers: 1.1 times 10 is 11, and not a little more."""
    exact = Fraction(str(min(max(factor, 1e-6), n_experts))).limit_denominator(10**6)  # beyond, C is 1 or N anyway
    return -(-tokens * top_k * exact.numerator // (n_experts * exact.denominator))


@dataclass(frozen=True)
class Placement:
    """Where tokens go in the end: `experts` (N, k), X where a place is empty.

    over      how many choices fell on a full expert, a scalar
    dropped   how many of those found no other one
    """

    experts: Tensor
    over: Tensor
    dropped: Tensor


@dataclass(frozen=True)
class Seats:
    """The rule of one pass: a capacity by `factor`, and what `overflow` makes of those beyond it.

    First choices are placed before second ones, and equal choices in the order of the tokens (Lepikhin et al. 2021).

        drop      a choice that falls on a full expert is given up; the residual stream carries the token on
        reroute   each token in turn goes to its best expert with room, then each to its next, until it has k
        expand    nobody is turned away; what is beyond the capacity is only told
    """

    factor: float
    overflow: Overflow

    def place(self, preferred: Tensor, experts: Tensor) -> Placement:
        """Places the choices experts (N, k), X for padding, of tokens that rank the experts by preferred (N, X)."""
        n_experts, top_k = preferred.shape[1], experts.shape[1]
        room = self._room(experts, n_experts, top_k)
        seated = _first_come(experts.T.flatten(), room, n_experts).view(top_k, -1).T  # (N, k)
        over = (experts < n_experts).sum() - (seated < n_experts).sum()
        placed = _OVERFLOW[self.overflow](preferred, experts, seated, room)
        return Placement(placed, over, (experts < n_experts).sum() - (placed < n_experts).sum())

    def _room(self, experts: Tensor, n_experts: int, top_k: int) -> Tensor:
        """Seats of each expert, (X,): padding has no part in their number, and nobody waits to read it."""
        tokens = (experts[:, 0] < n_experts).sum()
        return _share(tokens, top_k, n_experts, self.factor).clamp_min(1).minimum(tokens).expand(n_experts)


def _first_come(choices: Tensor, room: Tensor, n_experts: int) -> Tensor:
    """The choices (M,) that are within the room of their expert, in order; X in place of the others."""
    order = choices.argsort(stable=True)
    ranked = choices[order]
    counts = count(choices, n_experts)
    first = torch.cat((counts.cumsum(0) - counts, choices.new_zeros(1)))  # (X + 1,)
    at = torch.arange(len(choices), device=choices.device) - first[ranked]  # how many came before to the same expert
    room = torch.cat((room, room.new_zeros(1)))
    return torch.empty_like(choices).scatter(0, order, torch.where(at < room[ranked], ranked, n_experts))


def _drop(preferred: Tensor, experts: Tensor, seated: Tensor, room: Tensor) -> Tensor:
    return seated


def _expand(preferred: Tensor, experts: Tensor, seated: Tensor, room: Tensor) -> Tensor:
    return experts


def _reroute(preferred: Tensor, experts: Tensor, seated: Tensor, room: Tensor) -> Tensor:
    """In round r every token that still wants an expert asks its r-th best: X rounds, each a sort."""
    n_experts, top_k = preferred.shape[1], experts.shape[1]
    ranking = preferred.argsort(dim=1, descending=True, stable=True)  # (N, X)
    allowed = preferred.gather(1, ranking) > -torch.inf  # a group that isn't searched is no way out
    allowed = allowed & (experts < n_experts).any(1, keepdim=True)  # nor is padding placed
    found = experts.new_zeros(len(experts))  # (N,) how many experts each has
    placed = torch.full_like(experts, n_experts)
    places = torch.arange(top_k, device=experts.device)
    for asked, may in zip(ranking.unbind(1), allowed.unbind(1), strict=True):
        asked = torch.where(may & (found < top_k), asked, n_experts)
        got = _first_come(asked, room, n_experts)
        placed = torch.where((places == found[:, None]) & (got < n_experts)[:, None], got[:, None], placed)
        found = found + (got < n_experts)
        room = room - count(got, n_experts)
    return placed


_OVERFLOW: dict[Overflow, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "drop": _drop,
    "reroute": _reroute,
    "expand": _expand,
}
