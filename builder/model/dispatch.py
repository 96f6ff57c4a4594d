"""Tokens to experts and back: rows sorted by expert, each carried there and home by reading, never by adding up.

Three tokens with two experts each, first choices before second ones:

    token      0   1   2                row       0   1   2   3   4   5
    experts    2,0 1,2 0,2              expert    0   0   1   2   2   2
                                        token     2   0   1   0   1   2
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Dispatch(ABC):
    """Who goes where in one pass: M rows for N tokens, sorted by expert, `counts` (X,) int64 of them for each.

    `full`: every row is some expert's, so that the counts add up to M.
    """

    counts: Tensor
    full: bool

    @abstractmethod
    def spread(self, x: Tensor) -> Tensor:
        """What the experts read: x (N, D) -> (M, D); rows that are nobody's may hold anything finite."""

    @abstractmethod
    def gather(self, y: Tensor) -> Tensor:
        """What the tokens get back, each row by its weight: y (M, D) -> (N, D)."""


class ByToken(Dispatch):
    """Every token has k places: `experts` (N, k) int64, X where a place is empty and it isn't `full`, `weights` (N, k).

    Both ways, and both their gradients, read k rows for each token, so that no two threads add to one number.
    """

    def __init__(self, experts: Tensor, weights: Tensor, n_experts: int, full: bool = False):
        self.weights, self.full = weights.T, full  # (k, N)
        flat = experts.T.flatten()  # (kN,) first choices first
        order = flat.argsort(stable=True)
        self.counts = count(flat, n_experts)
        self.token = order % len(experts)  # (M,) whose token each row is
        row = torch.arange(len(order), device=order.device)
        self.row = torch.empty_like(order).scatter(0, order, row).view(self.weights.shape)  # (k, N) where it went
        self.order = order

    def spread(self, x: Tensor) -> Tensor:
        return _Spread.apply(x, self.token, self.row) if torch.is_grad_enabled() else x.index_select(0, self.token)

    def gather(self, y: Tensor) -> Tensor:
        weights = self.weights.to(y.dtype)
        if not torch.is_grad_enabled():
            return _weighed(y, weights, self.row)
        return _Gather.apply(y, weights, self.token, self.row, self.order)


class ByExpert(Dispatch):
    """Every expert has C rows: `tokens` (X, C) int64, and `weights` (X, C), 0 where a row is nobody's."""

    def __init__(self, tokens: Tensor, weights: Tensor, n_tokens: int):
        self.tokens, self.weights, self.n_tokens = tokens.flatten(), weights.flatten(), n_tokens  # (M,)
        self.counts, self.full = torch.full((len(tokens),), tokens.shape[1], device=tokens.device), True

    def spread(self, x: Tensor) -> Tensor:
        return x.index_select(0, self.tokens)

    def gather(self, y: Tensor) -> Tensor:
        weighted = y * self.weights.to(y.dtype)[:, None]  # (M, D)
        return y.new_zeros(self.n_tokens, y.shape[1]).index_add(0, self.tokens, weighted)  # (N, D)


def count(experts: Tensor, n_experts: int) -> Tensor:
    """How often each expert is named, (X,) int64; the name X counts for nobody."""
    ones = torch.ones_like(experts)
    return torch.zeros(n_experts + 1, dtype=torch.int64, device=experts.device).scatter_add(0, experts, ones)[:-1]


def _weighed(y: Tensor, weights: Tensor, row: Tensor) -> Tensor:
    """For each token the sum of its k rows of y (M, D), by their weights (k, N): (N, D)."""
    out = y.index_select(0, row[0]).mul_(weights[0][:, None])  # (N, D)
    for weight, choice in zip(weights[1:], row[1:], strict=True):
        out.addcmul_(y.index_select(0, choice), weight[:, None])
    return out


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, token: Tensor, row: Tensor) -> Tensor:
        ctx.save_for_backward(row)
        return x.index_select(0, token)  # (M, D)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (row,) = ctx.saved_tensors
        dx = grads[0].index_select(0, row[0])  # (N, D)
        for choice in row[1:]:
            dx += grads[0].index_select(0, choice)
        return dx, None, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, weights: Tensor, token: Tensor, row: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(y, weights, token, row, order)
        return _weighed(y, weights, row)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        y, weights, token, row, order = ctx.saved_tensors
        (grad,) = grads
        back = grad.index_select(0, token)  # (M, D)
        of_row = (back * y).sum(-1)  # (M,)
        dw = of_row.index_select(0, row.flatten()).view(weights.shape)  # (k, N)
        dy = back.mul_(weights.flatten().index_select(0, order)[:, None])  # (M, D)
        return dy, dw, None, None, None
