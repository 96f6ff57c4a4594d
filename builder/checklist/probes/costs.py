"""Whether the FLOPs that components state are those of a run: matrix products are counted while the specimen runs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from builder.components.attention import Attention
from builder.components.kernel import kernels
from builder.finding import Finding, Status

from . import Specimen


@torch.no_grad()
def prove(specimen: Specimen) -> Iterator[Finding]:
    """The FLOPs stated for a sequence against those counted."""
    model = copy.deepcopy(specimen.model)
    for attention in (module for module in model.modules() if isinstance(module, Attention)):
        attention.kernels = kernels("eager")  # the reference multiplies what the formula says and nothing beside it
    with Counter() as counter:
        model(specimen.tokens, **specimen.beside())
    stated = model.flops(specimen.tokens.shape[1])
    if stated != counter.total:
        found = f"{stated:,} FLOPs stated, {counter.total:,} counted on a small copy"
        rule = "each part states the FLOPs of what it multiplies, so that runs are compared at their true cost"
        yield Finding(Status.FAIL, 1, "model", found, rule, "add what is missing to the `flops` of the component")
    else:
        found = f"FLOPs of a small copy: {counter.total:,}, as stated"
        yield Finding(Status.PASS, 1, "model", found, "proven: every matrix product of a run was counted")


class Counter(TorchDispatchMode):
    """Counts two FLOPs for each multiply-add of the products that run on the CPU while it is entered.

    It stands where all ways of writing a product have become one of a few. torch's own FLOP counter stands there too,
    but importing it costs more than the whole check.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and being skipped by the compiler means to import it

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket in _COSTS:
            self.total += _COSTS[func.overloadpacket](out, *args)
        return out


def _product(out: Tensor, a: Tensor, b: Tensor, *_: Any) -> int:
    return 2 * out.numel() * a.shape[-1]


def _added_product(out: Tensor, c: Tensor, a: Tensor, b: Tensor, *_: Any) -> int:
    return _product(out, a, b)


def _attention(out: Any, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> int:
    scores = q.shape[:-1].numel() * k.shape[-2]  # (B, H, T, S)
    return 2 * scores * (q.shape[-1] + v.shape[-1])


def _convolution(
    out: Tensor, x: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, back: bool, *_: Any
) -> int:
    return 2 * (x if back else out).numel() * weight[0].numel()


_ATEN = torch.ops.aten
_COSTS: dict[Any, Callable[..., int]] = {
    **dict.fromkeys((_ATEN.mm, _ATEN.bmm, _ATEN.mv, _ATEN.dot), _product),
    **dict.fromkeys((_ATEN.addmm, _ATEN.baddbmm, _ATEN.addmv), _added_product),
    _ATEN._scaled_dot_product_flash_attention_for_cpu: _attention,
    _ATEN.convolution: _convolution,
}
