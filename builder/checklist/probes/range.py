"""The range of float32 in proofs that run in float64: what a component may write in one is no number of the other."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class InRange(TorchDispatchMode):
    """Keeps finite what was finite where float64 becomes float32, and says in `met` whether that was ever needed.

    An attention may hide scores with `torch.finfo(dtype).min` and cast them to float32 before its softmax: a row that
    sees nothing is then even in float32 and in bfloat16, whose least number float32 has. That of float64 would be minus
    infinity in float32, and the row no number, in the proof alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self.met = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = args[0] if args else None
        if not isinstance(first, Tensor):
            return func(*args, **(kwargs or {}))
        if first.dtype is torch.float32:
            args = tuple(self._held(arg) if isinstance(arg, float) else arg for arg in args)
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket is torch.ops.aten._to_copy and first.dtype is torch.float64 and out.is_floating_point():
            return self._kept(first, out)
        return out

    def _kept(self, wide: Tensor, out: Tensor) -> Tensor:
        """What became of a tensor in a narrower dtype, finite where that is."""
        lost = out.isinf() & wide.isfinite()
        if not lost.any():
            return out
        self.met = True
        limit = torch.finfo(out.dtype)
        return torch.where(lost, out.clamp(limit.min, limit.max), out)

    def _held(self, number: float) -> float:
        largest = torch.finfo(torch.float32).max
        if math.isinf(number) or abs(number) <= largest:
            return number
        self.met = True
        return math.copysign(largest, number)
