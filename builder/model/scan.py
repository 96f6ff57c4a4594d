"""The linear recurrence h_t = a_t h_{t-1} + b_t over a whole sequence, in about 2 sqrt(T) steps each way."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

Affine = tuple[Tensor, Tensor]


def compose(second: Affine, first: Affine) -> Affine:
    """(a2, b2) after (a1, b1) is (a2 a1, a2 b1 + b2): associative, so a sequence may be cut anywhere (chapter 3.10)."""
    (a2, b2), (a1, b1) = second, first
    return a2 * a1, a2 * b1 + b2


def chunk_length(length: int) -> int:
    """A power of 2 near the root of a length: the steps inside a chunk and those over chunks are then about as many."""
    return 1 << max(0, (length - 1).bit_length() // 2)


def scan(a: Tensor, b: Tensor, initial: Tensor | None = None, chunk: int | None = None) -> Tensor:
    """Every h_t of h_t = a_t h_{t-1} + b_t, h_0 = a_0 initial + b_0: a and b (B, T, ...), `initial` (B, ...).

    Real or complex, in float32 or wider whatever comes in. A chunk of `chunk` tokens is gone through step by step, all
    chunks at once, then the chunks are joined one after the other. Raises ValueError for shapes that differ.
    """
    if a.shape != b.shape or (initial is not None and initial.shape != b[:, 0].shape if b.shape[1] else False):
        told = None if initial is None else tuple(initial.shape)
        raise ValueError(f"scan: a {tuple(a.shape)}, b {tuple(b.shape)} and initial {told} don't fit together")
    wide = torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.float32)
    a, b = a.to(wide), b.to(wide)
    if not b.shape[1]:
        return b
    first = b.new_zeros(b.shape[:1] + b.shape[2:]) if initial is None else initial.to(wide)
    found: Tensor = _Scan.apply(a, b, first, chunk or chunk_length(b.shape[1]))  # type: ignore[assignment]
    return found


def folded(v: Tensor, chunk: int, fill: float = 0.0) -> Tensor:
    """(B, T, ...) in chunks, time first and in one piece of memory: (L, K, B, ...), L = `chunk`, filled up at the end.

    Steps then read and write whole blocks of memory, and no gradient of a slice is ever as large as the sequence.
    """
    short = -v.shape[1] % chunk
    if short:
        v = F.pad(v, (0, 0) * (v.dim() - 2) + (0, short), value=fill)
    parts = v.unflatten(1, (-1, chunk)).permute(2, 1, 0, *range(3, v.dim() + 1))
    return parts.clone(memory_format=torch.contiguous_format)  # always a copy, since steps write into it


def unfolded(v: Tensor, length: int) -> Tensor:
    """(L, K, B, ...) as (B, T, ...) again, the first `length` tokens."""
    return v.permute(2, 1, 0, *range(3, v.dim())).flatten(1, 2)[:, :length]


class _Scan(torch.autograd.Function):
    """Keeps a and h. With g_t = dh_t + conj(a_{t+1}) g_{t+1}: db_t = g_t and da_t = g_t conj(h_{t-1})."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, initial: Tensor, chunk: int) -> Tensor:
        h = unfolded(_along(folded(a, chunk, 1.0), folded(b, chunk), initial), b.shape[1])
        ctx.save_for_backward(a, h, initial)
        ctx.chunk = chunk
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        (dh,), (a, h, initial), chunk = grads, ctx.saved_tensors, ctx.chunk
        back = a.conj().resolve_conj()
        later = torch.cat((back[:, 1:], torch.ones_like(back[:, :1])), dim=1).flip(1)  # a_{t+1}, the last first
        none = torch.zeros_like(initial)
        g = unfolded(_along(folded(later, chunk, 1.0), folded(dh.flip(1), chunk), none), a.shape[1]).flip(1)
        before = torch.cat((initial[:, None], h[:, :-1]), dim=1)
        return g * before.conj(), g, back[:, 0] * g[:, 0], None


def _along(a: Tensor, h: Tensor, state: Tensor) -> Tensor:
    """Writes every h into `h`, which holds b; a and b (L, K, B, ...), the state ahead of them (B, ...)."""
    product = a.clone()
    for t in range(1, len(a)):
        h[t].addcmul_(a[t], h[t - 1])
        product[t].mul_(product[t - 1])
    before = torch.empty_like(h[0])  # (K, B, ...)
    for k in range(a.shape[1]):
        before[k] = state
        state = torch.addcmul(h[-1, k], product[-1, k], state)
    return h.addcmul_(product, before)
