"""The activations: functions of one number each, and the product of one with what it gates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

_aten = torch.ops.aten
Activation = Literal["relu", "gelu", "gelu_tanh", "relu_squared", "silu", "quick_gelu", "tanh"]


@dataclass(frozen=True)
class Curve:
    """A function f of one number, applied to each of a tensor; `back` writes dy f'(x) over dy, where torch can."""

    value: Callable[[Tensor], Tensor]
    back: Callable[[Tensor, Tensor], Tensor] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """f(x), in memory of its own."""
        return self.value(x)

    def backward_(self, dy: Tensor, x: Tensor) -> Tensor:
        """dy f'(x), possibly in the memory of dy, which is no longer dy then."""
        if self.back is not None:
            return self.back(dy, x)
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            y = self.value(leaf)
        return torch.autograd.grad(y, leaf, dy)[0]


def _relu_squared(x: Tensor) -> Tensor:
    """relu(x)^2 (So et al. 2021, "Primer")."""
    return F.relu(x).square()


def _quick_gelu(x: Tensor) -> Tensor:
    """x sigmoid(1.702 x) (Hendrycks & Gimpel 2016)."""
    return x * torch.sigmoid(1.702 * x)


def _gelu(approximate: str) -> Curve:
    return Curve(
        lambda x: F.gelu(x, approximate=approximate),
        lambda dy, x: _aten.gelu_backward.grad_input(dy, x, approximate=approximate, grad_input=dy),
    )


ACTIVATIONS: dict[str, Curve] = {
    "relu": Curve(F.relu, lambda dy, x: _aten.threshold_backward.grad_input(dy, x, 0, grad_input=dy)),
    "gelu": _gelu("none"),
    "gelu_tanh": _gelu("tanh"),
    "relu_squared": Curve(_relu_squared),
    "silu": Curve(F.silu, lambda dy, x: _aten.silu_backward.grad_input(dy, x, grad_input=dy)),
    "quick_gelu": Curve(_quick_gelu),
    "tanh": Curve(torch.tanh),
}
SILU = ACTIVATIONS["silu"]


def gated(activation: Curve, gate: Tensor, values: Tensor) -> Tensor:
    """act(gate) * values, each of one shape; only these two are kept for the way back, where act(gate) is made again.

    A third of what a gated layer would keep is so left out, and what is written anew goes over memory once less
    (Hsu et al. 2024, "Liger Kernel", section 3.2).
    """
    alike = gate.dtype == values.dtype and gate.shape == values.shape
    if not alike or torch.compiler.is_compiling():  # which fuses it by itself
        return activation(gate) * values
    if torch.is_grad_enabled():
        return _Gated.apply(gate, values, activation)  # type: ignore[no-any-return]
    return activation(gate).mul_(values)


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, values: Tensor, activation: Curve) -> Tensor:
        ctx.save_for_backward(gate, values)
        ctx.activation = activation
        return activation(gate).mul_(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (dy,), (gate, values) = grads, ctx.saved_tensors
        to_gate, to_values, _ = ctx.needs_input_grad
        dgate = ctx.activation.backward_(dy * values, gate) if to_gate else None
        dvalues = ctx.activation(gate).mul_(dy) if to_values else None
        return dgate, dvalues, None
