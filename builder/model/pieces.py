"""The sum of a loss over the outputs of a linear map, of which a piece exists at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

Loss = Callable[[Tensor, slice], Tensor]
"""(outputs of some rows (R, V), which rows of all they are) -> their summed loss, a scalar in float32."""
ROWS = {"cpu": 256, "cuda": 1024}
"""Of a piece: enough for its products to take longer than the sums over pieces, whatever the widths."""


def summed(x: Tensor, weight: Tensor, bias: Tensor | None, loss: Loss) -> Tensor:
    """sum over pieces r of loss(x_r W^T + b): x (N, D), weight (V, D), bias (V,) -> a scalar in float32.

    Where gradients are wanted they are computed with the loss, so that nothing of size N x V is kept and no product is
    taken twice (Hsu et al. 2024, "Liger Kernel"); one can go backward through it once.
    """
    return _Summed.apply(x, weight, bias, loss, torch.is_grad_enabled())  # type: ignore[return-value]


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, loss: Loss, wanted: bool) -> Tensor:
        to_x, to_weight, to_bias = (wanted and needed for needed in ctx.needs_input_grad[:3])
        wide = torch.promote_types(weight.dtype, torch.float32)  # in bfloat16, sums over pieces would stand still
        dx = torch.empty_like(x) if to_x else None
        dw = torch.zeros_like(weight, dtype=wide) if to_weight else None
        db = torch.zeros_like(bias, dtype=wide) if bias is not None and to_bias else None
        total = x.new_zeros((), dtype=torch.float32)
        step = ROWS.get(x.device.type, max(ROWS.values()))
        for start in range(0, len(x), step):
            rows = slice(start, start + step)
            part, dz = _piece(F.linear(x[rows], weight, bias), rows, loss, to_x or to_weight or to_bias)
            total += part
            if dx is not None:
                dx[rows] = dz @ weight  # (R, D)
            if dw is not None:
                dw += dz.T @ x[rows]  # (V, D)
            if db is not None:
                db += dz.sum(0)  # (V,)
            del dz  # before the next one is made
        ctx.gradients = dx, dw, db
        ctx.dtype = weight.dtype
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        if ctx.gradients is None:
            raise RuntimeError("a loss that was computed in pieces was gone backward through twice")
        (grad,), found, ctx.gradients = grads, ctx.gradients, None
        dx, dw, db = (None if each is None else each.mul_(grad) for each in found)
        return dx, dw if dw is None else dw.to(ctx.dtype), db if db is None else db.to(ctx.dtype), None, None


def _piece(z: Tensor, rows: slice, loss: Loss, wanted: bool) -> tuple[Tensor, Tensor]:
    """(the loss of z (R, V), its gradient there if `wanted`, else z)."""
    if not wanted:
        return loss(z, rows), z
    with torch.enable_grad():
        z.requires_grad_()
        part = loss(z, rows)
    (dz,) = torch.autograd.grad(part, z)
    return part.detach(), dz
