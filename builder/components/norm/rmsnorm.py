"""RMSNorm: scale each vector by its root mean square."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from pydantic import PositiveFloat
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from builder.component import Config as BaseConfig
from builder.components.norm import Norm
from builder.registry import register


@register("norm", "rmsnorm")
class RMSNorm(Norm):
    """RMSNorm(x) = g * x / sqrt(mean(x^2) + eps) over the last axis (chapter 3.5; Zhang & Sennrich 2019).

    With `unit_offset` g = 1 + w and w starts from 0 (Gemma Team 2024, "Gemma"): then a bfloat16 w keeps its precision
    near g = 1. In a low dtype the product with g is rounded once, as in Gemma; Llama rounds x / rms before it too.
    """

    class Config(BaseConfig):
        """`eps` is added to the mean square; `unit_offset` learns g less 1."""

        name: str = "rmsnorm"
        eps: PositiveFloat = 1e-6
        unit_offset: bool = False

    def __init__(self, config: RMSNorm.Config, width: int):
        super().__init__()
        self.eps, self.unit_offset = config.eps, config.unit_offset
        self.roles = {"weight": "offset" if config.unit_offset else "scale"}
        self.weight = nn.Parameter(torch.zeros(width) if config.unit_offset else torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        if not self.unit_offset:
            return _normed(x, self.weight, self.eps)
        wide = torch.promote_types(x.dtype, torch.float32)  # in bfloat16, 1 + w would lose what w holds
        return _normed(x.to(wide), 1 + self.weight.to(wide), self.eps).to(x.dtype)


def _normed(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """By torch's kernel where it has one; on a CPU it has none, and what takes its place goes over memory too often.

    Nor does autocast there, as it does on a GPU, give a kernel an x and a g of one dtype.
    """
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.rms_norm(x, gain.shape, gain, eps)
    if x.dtype != gain.dtype:
        wide = torch.promote_types(x.dtype, gain.dtype)
        return _normed(x.to(wide), gain.to(wide), eps).to(x.dtype)
    if x.dtype not in (torch.float32, torch.float64):
        return F.rms_norm(x, gain.shape, gain, eps)
    return _OnCPU.apply(x, gain, eps) if torch.is_grad_enabled() else _on_cpu(x, gain, eps)[0]  # type: ignore[no-any-return]


def _on_cpu(x: Tensor, gain: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The norm of x (..., D), and 1 / rms (..., 1)."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    scale = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
    return torch.mul(x, scale).mul_(gain), scale


class _OnCPU(torch.autograd.Function):
    """RMSNorm in few passes over memory: the backward of LayerNorm about a mean of 0, which torch has a kernel for.

    With n = x / rms, c = g dy:  dx = (c - n mean(c n)) / rms, and LayerNorm's is less by mean(c) / rms.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        out, scale = _on_cpu(x, gain, eps)
        ctx.save_for_backward(x, gain, scale)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (dy,), (x, gain, scale) = grads, ctx.saved_tensors
        mean, wanted = torch.zeros_like(scale), [True, True, False]
        dx, dgain, _ = torch.ops.aten.native_layer_norm_backward(dy, x, gain.shape, mean, scale, gain, None, wanted)
        of_mean = dy.reshape(-1, x.shape[-1]).mv(gain).view_as(scale)  # (..., 1); mv: autocast leaves it alone
        return dx.add_(of_mean.mul_(scale).div_(x.shape[-1])), dgain, None
