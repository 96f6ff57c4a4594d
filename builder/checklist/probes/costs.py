"""Whether the FLOPs that components state are those of a run: matrix products are counted while the specimen runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from builder.finding import Finding, Status

from . import Specimen


@torch.no_grad()
def prove(specimen: Specimen) -> Iterator[Finding]:
    """The FLOPs stated for a sequence against those counted."""
    length = specimen.tokens.shape[1]
    with Counter() as counter:
        specimen.model(specimen.tokens)
    stated = specimen.model.flops(length)
    if stated != counter.total:
        found = f"{stated:,} FLOPs stated, {counter.total:,} counted on a small copy"
        rule = "each part states the FLOPs of what it multiplies, so that runs are compared at their true cost"
        yield Finding(Status.FAIL, 1, "model", found, rule, "add what is missing to the `flops` of the component")
    else:
        found = f"FLOPs of a small copy: {counter.total:,}, as stated"
        yield Finding(Status.PASS, 1, "model", found, "proven: every matrix product of a run was counted")


class Counter(TorchFunctionMode):
    """Counts two FLOPs for each multiply-add of the matrix products that are called while it is entered.

    torch's own counter does the same below the dispatcher, where importing it costs more than the whole check.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in _COSTS:
            self.total += _COSTS[func](out, *args)
        return out


def _product(out: Tensor, a: Tensor, b: Tensor, *_: Any) -> int:
    return 2 * out.numel() * a.shape[-1]


def _attention(out: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> int:
    scores = q.shape[:-1].numel() * k.shape[-2]  # (B, H, T, S)
    return 2 * scores * (q.shape[-1] + v.shape[-1])


def _einsum(out: Tensor, equation: str, *operands: Tensor) -> int:
    indices = equation.replace(" ", "").split("->")[0].split(",")
    sizes = {
        letter: size
        for index, operand in zip(indices, operands, strict=True)
        for letter, size in zip(index, operand.shape, strict=True)
    }
    multiplications = 1
    for size in sizes.values():
        multiplications *= size
    return 2 * multiplications * (len(operands) - 1)


def _convolution(out: Tensor, x: Tensor, weight: Tensor, *_: Any) -> int:
    return 2 * out.numel() * weight[0].numel()


_COSTS: dict[Any, Callable[..., int]] = {
    F.linear: _product,
    F.scaled_dot_product_attention: _attention,
    F.conv1d: _convolution,
    torch.einsum: _einsum,
    **dict.fromkeys(
        (torch.matmul, torch.mm, torch.bmm, Tensor.matmul, Tensor.mm, Tensor.bmm, Tensor.__matmul__), _product
    ),
}
