"""A linear map for each group of rows: one product per group, none waits for the device, none is padded to another.

Rows come sorted by group. On a CPU each group is multiplied where it lies; on a GPU torch has a grouped product, and
where it hasn't, and while torch compiles, rows are laid out in equal blocks that no two groups share:

    rows     0 0 0 0 0 1 2 2 2          blocks of 3     0 0 0 | 0 0 . | 1 . . | 2 2 2
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.function import once_differentiable

_Spans = list[tuple[int, slice]]
_ALIGNED = 16  # bytes that the rows of a matrix must be a multiple of, for torch's grouped product


class Groups:
    """How many rows each group has now, `counts` (X,) int64: told before the maps are applied that share it.

    `full` says that every row belongs to a group. What follows from the counts is made once for all the maps.
    """

    def __init__(self, n_groups: int) -> None:
        self.n_groups = n_groups
        self.counts: Tensor | None = None
        self.full = False
        self._made: dict[str, Any] = {}

    def divide(self, counts: Tensor, full: bool = False) -> None:
        """The rows that come next are divided like this."""
        self.counts, self.full, self._made = counts, full, {}

    def spans(self, rows: int) -> _Spans:
        """(group, its rows) of the groups that have any; on a GPU that would mean to wait for it.

        Where no number is computed, as in a forecast of memory, all M rows are divided evenly.
        """
        return self._once("spans", lambda: self._spans(rows))

    def ends(self) -> Tensor:
        """Behind which row each group ends, (X,) int32."""
        return self._once("ends", lambda: self._told().cumsum(0).to(torch.int32))

    def of_row(self, rows: int) -> Tensor:
        """The group of each of all M rows, (M,) int64; rows that belong to none are given to the last."""
        return self._once("of_row", lambda: self._owner(self._told(), rows))

    def held(self, rows: int) -> Tensor:
        """Which of all M rows belong to a group, (M, 1) bool."""
        return self._once("held", lambda: (torch.arange(rows, device=self._told().device) < self.ends()[-1])[:, None])

    def blocks(self, rows: int) -> tuple[int, Tensor, Tensor]:
        """(rows of a block, the place (M,) of each of all M rows in the blocks, the group (n,) of each block).

        How many blocks there are depends on the number of rows alone, however they are divided: at most one in each
        group isn't full. A quarter of the mean group is a block, so at most a quarter more is multiplied.
        """
        return self._once("blocks", lambda: self._blocks(rows))

    def _spans(self, rows: int) -> _Spans:
        told = self._told()
        if isinstance(told, FakeTensor):
            ends = [rows * group // self.n_groups for group in range(self.n_groups + 1)]
        else:
            ends = list(accumulate(told.tolist(), initial=0))
        return [(group, slice(*rows)) for group, rows in enumerate(pairwise(ends)) if rows[0] < rows[1]]

    def _owner(self, counts: Tensor, places: int) -> Tensor:
        at = torch.arange(places, device=counts.device)
        return torch.searchsorted(counts.cumsum(0), at, right=True).clamp_max(self.n_groups - 1)

    def _blocks(self, rows: int) -> tuple[int, Tensor, Tensor]:
        size = max(1, rows // (4 * self.n_groups))
        n_blocks = min(rows, rows // size + self.n_groups)
        counts, group = self._told(), self.of_row(rows)
        blocks = (counts + size - 1) // size  # (X,)
        first_row, first_block = counts.cumsum(0) - counts, blocks.cumsum(0) - blocks
        at = torch.arange(rows, device=counts.device) - first_row[group] + first_block[group] * size  # (M,)
        return size, at.clamp_max(n_blocks * size), self._owner(blocks, n_blocks)  # rows of no group lie behind all

    def _told(self) -> Tensor:
        if self.counts is None:
            raise RuntimeError("a grouped map was applied before its rows were divided")
        return self.counts

    def _once(self, what: str, make: Callable[[], Any]) -> Any:
        if what not in self._made:
            self._made[what] = make()
        return self._made[what]


class GroupedLinear(nn.Module):
    """y_m = x_m W_g(m)^T + b_g(m) for the group g(m) of row m; weight (X, out, in), bias (X, out)."""

    def __init__(self, like: nn.Linear, groups: Groups):
        super().__init__()
        shape = (groups.n_groups, *like.weight.shape)
        self.weight = nn.Parameter(like.weight.new_empty(shape))
        self.bias = None if like.bias is None else nn.Parameter(like.weight.new_empty(shape[:2]))
        self.roles = getattr(like, "roles", {"weight": "matrix", "bias": "bias"})
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        """x (M, in), sorted by group -> (M, out); rows that belong to no group give zeros."""
        kind = "cpu" if x.is_meta else x.device.type  # autocast knows of no meta
        weight, bias = _here(self.weight), None if self.bias is None else _here(self.bias)
        if torch.is_autocast_enabled(kind) and x.dtype != torch.float64:  # which knows of no grouped product
            dtype = torch.get_autocast_dtype(kind)
            x, weight, bias = x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
        return grouped_linear(x, weight, bias, self.groups)


def _here(parameter: Any) -> Tensor:
    """The groups that lie on this rank, where they are divided over several."""
    if not hasattr(parameter, "to_local"):
        return parameter
    return _OfAllRanks.apply(parameter.to_local(), parameter.device_mesh.size())  # type: ignore[return-value]


class _OfAllRanks(torch.autograd.Function):
    """Nothing forward; backward the mean over ranks, as other gradients are: here rows of all ranks come together."""

    @staticmethod
    def forward(ctx: Any, local: Tensor, ranks: int) -> Tensor:
        ctx.ranks = ranks
        return local.view_as(local)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return grads[0] / ctx.ranks, None


class Apart(nn.ModuleList):
    """A module for each group, for those that can't be held in one: on a GPU every pass waits to read the division."""

    def __init__(self, modules: Iterable[nn.Module], groups: Groups):
        super().__init__(modules)
        self.groups = groups

    def forward(self, x: Tensor, *more: Any) -> Tensor:
        """x (M, D), sorted by group -> (M, D); rows that belong to no group give zeros."""
        spans = self.groups.spans(len(x))
        each = [self[group](x[rows], *more) for group, rows in spans]
        return torch.cat([*each, x.new_zeros(len(x) - _end(spans), x.shape[1])])


def per_group(make: Callable[[], nn.Module], n_groups: int) -> tuple[nn.Module, Groups]:
    """(what applies the module that `make` makes to each group with parameters of its own, the division that it reads).

    Where all parameters are in linear maps it is one module, in which each map holds all groups; else it is `Apart`.
    """
    groups, module = Groups(n_groups), make()
    inner = list(module.modules())
    if any(list(part.parameters(recurse=False)) for part in inner if not isinstance(part, nn.Linear)):
        return Apart([module, *(make() for _ in range(n_groups - 1))], groups), groups
    for parent in inner:
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, GroupedLinear(child, groups))
    return module, groups


def grouped_linear(x: Tensor, weight: Tensor, bias: Tensor | None, groups: Groups) -> Tensor:
    """x (M, in) sorted by group, weight (X, out, in), bias (X, out) -> (M, out), by the fastest way there is."""
    if x.device.type == "cpu" and not torch.compiler.is_compiling():
        each = _EachGroup.apply if torch.is_grad_enabled() else _each_group
        one = isinstance(x, FakeTensor)  # products are written in place: one takes the memory of all
        return each(x, weight, bias, [(0, slice(0, len(x)))] if one else groups.spans(len(x)))
    if _own_kernel(x, weight):  # it leaves anything behind the last group, in the gradient of x too
        x = x if groups.full else torch.where(groups.held(len(x)), x, 0)
        y = F.grouped_mm(x, weight.mT, offs=groups.ends())
    else:
        y = _in_blocks(x, weight, groups)
    if bias is not None:
        y = y + bias[groups.of_row(len(x))]
    return y if groups.full else torch.where(groups.held(len(x)), y, 0)


def _own_kernel(x: Tensor, weight: Tensor) -> bool:
    """Whether torch has a kernel of its own for this product."""
    aligned = all(side * x.element_size() % _ALIGNED == 0 for side in weight.shape[1:])
    able = x.device.type == "cuda" and torch.cuda.get_device_capability(x.device) >= (8, 0)
    return able and aligned and x.dtype == weight.dtype == torch.bfloat16


class _EachGroup(torch.autograd.Function):
    """One product after the other, each written where its rows lie: nothing is split, joined or filled with zeros."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, spans: _Spans) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.spans = spans
        return _each_group(x, weight, bias, spans)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (grad,) = grads
        x, weight = ctx.saved_tensors
        to_x, to_weight, to_bias, _ = ctx.needs_input_grad
        dx = torch.empty_like(x) if to_x else None
        dw = torch.empty_like(weight) if to_weight else None
        db = weight.new_zeros(weight.shape[:2]) if to_bias else None
        if dw is not None:
            dw[list(set(range(len(dw))) - {group for group, _ in ctx.spans})] = 0  # no row passed: no gradient
        grad = grad.contiguous()
        for group, rows in ctx.spans:
            if dx is not None:
                torch.mm(grad[rows], weight[group], out=dx[rows])
            if dw is not None:
                torch.mm(grad[rows].T, x[rows], out=dw[group])
            if db is not None:
                torch.sum(grad[rows], 0, out=db[group])
        if dx is not None:
            dx[_end(ctx.spans) :] = 0
        return dx, dw, db, None


def _each_group(x: Tensor, weight: Tensor, bias: Tensor | None, spans: _Spans) -> Tensor:
    y = x.new_empty(len(x), weight.shape[1])  # (M, out)
    for group, rows in spans:
        if bias is None:
            torch.mm(x[rows], weight[group].T, out=y[rows])
        else:
            torch.addmm(bias[group], x[rows], weight[group].T, out=y[rows])
    if (end := _end(spans)) < len(y):
        y[end:] = 0
    return y


def _end(spans: _Spans) -> int:
    """Behind which row the last group ends."""
    return spans[-1][1].stop if spans else 0


def _in_blocks(x: Tensor, weight: Tensor, groups: Groups) -> Tensor:
    """The rows laid out in blocks of one size, of which each belongs to one group, and those multiplied at once."""
    size, at, owner = groups.blocks(len(x))
    laid = x.new_zeros(len(owner) * size + 1, x.shape[1]).index_copy(0, at, x)[:-1].unflatten(0, (len(owner), size))
    y = torch.bmm(laid, weight[owner].mT).flatten(0, 1)  # (n * size, out)
    return F.pad(y, (0, 0, 0, 1))[at]  # (M, out)
