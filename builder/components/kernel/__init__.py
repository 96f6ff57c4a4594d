"""The arithmetic of attention proper: every kernel computes the same function, and the fastest that can is taken.

    w = softmax(cap(q k^T scale) + bias) over the visible keys and the sink,   out = w v

where cap(s) = c tanh(s / c).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from builder import registry
from builder.component import Component
from builder.errors import ArchlabError
from builder.model.bias import Bias
from builder.model.mask import Mask


@dataclass(frozen=True)
class Scoring:
    """How scores become weights.

    mask        what may be seen
    scale       on the products q k
    softcap     c bounds the scaled scores by c tanh(s / c) (Gemma 2); None: they are as they are
    bias        added after the cap, (B | 1, H, T, S) or a description of it
    sinks       (H,) one more score per query head, of a key that holds nothing (gpt-oss; Xiao et al. 2023)
    dropout     share of the weights that is dropped
    """

    mask: Mask
    scale: float
    softcap: float | None = None
    bias: Bias | Tensor | None = None
    sinks: Tensor | None = None
    dropout: float = 0.0


@dataclass(frozen=True)
class Case:
    """What decides which kernels can compute a pass, and how fast: `flag` when no written-out mask is needed."""

    device: str
    width: int = 16
    """Of the narrower of keys and values."""
    flag: bool = True
    single: bool = False
    """Whether there is one query only, as in decode."""
    softcap: bool = False
    bias: bool = False
    sinks: bool = False
    dropout: bool = False
    grad: bool = False


class Kernel(Component):
    """Never instantiated: a kernel is one function, and all kernels agree to rounding."""

    @staticmethod
    def attend(q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """q (B, T, H, E), k (B, S, K, E), v (B, S, K, Ev) -> (B, T, H, Ev).

        Query head h reads KV head h // (H / K): heads share in blocks. Rows that see nothing give zeros.
        """
        raise NotImplementedError

    @staticmethod
    def refuses(case: Case) -> str | None:
        """Why this kernel can't compute such a pass; None when it can."""
        return None

    @staticmethod
    def speed(case: Case) -> int:
        """3: nothing of size T x S is read or written; 2: nor written; 1: a mask is read; 0: scores are written."""
        raise NotImplementedError


class KernelMisfit(ArchlabError):
    """The kernel that a config names can't compute what is asked of it."""


def kernels(name: str | None) -> tuple[type[Kernel], ...]:
    """The kernel of that name, or all of them."""
    return tuple(registry.find("kernel", each) for each in ([name] if name else registry.names("kernel")))


def fastest(among: Sequence[type[Kernel]], case: Case) -> type[Kernel]:
    """The fastest kernel that can compute a pass; raises KernelMisfit when none of them can."""
    able = [kernel for kernel in among if kernel.refuses(case) is None]
    if not able:
        reasons = "; ".join(str(kernel.refuses(case)) for kernel in among)
        raise KernelMisfit(f"kernel: {reasons}; write kernel=null, and the fastest one that can is taken")
    speeds = [kernel.speed(case) for kernel in able]
    return able[speeds.index(max(speeds))]  # torch.compile doesn't trace max(..., key=...)


def attend(among: Sequence[type[Kernel]], q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
    """What the fastest of some kernels gives: q (B, T, H, E), k (B, S, K, E), v (B, S, K, Ev) -> (B, T, H, Ev)."""
    case = Case(
        device=q.device.type,
        width=min(k.shape[-1], v.shape[-1]),
        flag=scoring.mask.flag(q.shape[1], k.shape[1]) is not None,
        single=q.shape[1] == 1,
        softcap=scoring.softcap is not None,
        bias=scoring.bias is not None,
        sinks=scoring.sinks is not None,
        dropout=scoring.dropout > 0,
        grad=q.requires_grad or k.requires_grad or v.requires_grad,  # none does where gradients are off
    )
    return fastest(among, case).attend(q, k, v, scoring)
