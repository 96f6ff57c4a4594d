"""The selective scan of Mamba, whose states exist for a few channels at a time and are computed twice, never kept."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .precision import own_dtype
from .scan import chunk_length, folded, unfolded

_CHUNK, _AT_ONCE = 16, 1 << 21
"""Tokens in a chunk of a long sequence, and numbers in the states of a block of channels, as they were fastest."""


def selective_scan(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, initial: Tensor | None = None,
    starts: Tensor | None = None, chunk: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """y_t = h_t c_t of h_t = exp(dt_t a) h_{t-1} + dt_t x_t b_t, and the last h (Gu & Dao 2023, "Mamba").

    x and dt (B, T, D), a (D, N), b and c (B, T, N), `initial` (B, D, N); y (B, T, D), the last h (B, D, N). Nothing of
    what was is left where `starts` (B, T) is true. A dt of 0 leaves the state as it is. Float32 or wider throughout.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    x, dt, a, b, c = (v.to(wide) for v in (x, dt, a, b, c))
    state = x.new_zeros(len(x), *a.shape) if initial is None else initial.to(wide)
    if not x.numel():  # the loops over chunks would run for nothing
        return x, state
    with own_dtype(x):
        return _Selective.apply(x, dt, a, b, c, state, starts, chunk or _chunk(x.shape[1]))  # type: ignore[return-value]


def scanned(length: int) -> int:
    """How many steps the scan of a sequence computes: whole chunks of it."""
    return -(-length // _chunk(length)) * _chunk(length)


def _chunk(length: int) -> int:
    return min(_CHUNK, chunk_length(length))


class _Selective(torch.autograd.Function):
    """All of a block's states are made in the forward pass, read, and dropped; the backward pass makes them again."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor, starts: Tensor | None,
        chunk: int,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        ctx.save_for_backward(x, dt, a, b, c, state, starts)
        ctx.chunk = chunk
        resets = None if starts is None else _Resets(starts, chunk)
        b, c, ys, lasts = folded(b, chunk), folded(c, chunk)[..., None], [], []
        for part in _blocks(x, a):
            step = folded(dt[..., part], chunk)  # (L, K, B, W)
            moved = folded(x[..., part], chunk).mul_(step)
            _, h, _, last = _states(step, moved, a[part], b, state[:, part], resets)
            ys.append((h @ c).squeeze(-1))  # (L, K, B, W)
            lasts.append(last)
        return unfolded(torch.cat(ys, -1), x.shape[1]), torch.cat(lasts, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (dy, dlast), (x, dt, a, b, c, state, starts), chunk = grads, ctx.saved_tensors, ctx.chunk
        resets = None if starts is None else _Resets(starts, chunk)
        length, b, c = x.shape[1], folded(b, chunk), folded(c, chunk)
        db, dc, whole = torch.zeros_like(b), torch.zeros_like(c), ([], [], [], [])
        for part in _blocks(x, a):
            step, values, rates = folded(dt[..., part], chunk), folded(x[..., part], chunk), a[part]
            read, moved = folded(dy[..., part], chunk), values * step  # (L, K, B, W)
            decay, h, before, _ = _states(step, moved, rates, b, state[:, part], resets)
            dc += (read[..., None, :] @ h).squeeze(-2)  # (L, K, B, N)
            g, dstate = _gradients(step, decay, rates, read[..., None] * c[..., None, :], dlast[:, part], resets)
            dmoved = (g @ b[..., None]).squeeze(-1)  # (L, K, B, W)
            db += (moved[..., None, :] @ g).squeeze(-2)
            decay.mul_(g)  # from here on: the gradient of the exponents, g_t h_{t-1} a_t
            decay[1:].mul_(h[:-1])
            decay[0].mul_(before)
            dstep = torch.addcmul((decay * rates).sum(-1), dmoved, values)
            drates = decay.mul_(step[..., None]).sum((0, 1, 2))  # (W, N)
            for kept, new in zip(whole, (dmoved.mul_(step), dstep, drates, dstate), strict=True):
                kept.append(new)
        dx, ddt = (unfolded(torch.cat(parts, -1), length) for parts in whole[:2])
        da, dinitial = torch.cat(whole[2]), torch.cat(whole[3], 1)
        return dx, ddt, da, unfolded(db, length), unfolded(dc, length), dinitial, None, None


class _Resets:
    """Where documents begin, for chunks (L, K, B, 1, 1): what goes through the decay there is nothing.

    here    no document begins at t      down    none from the chunk's start to t      up    none behind t in the chunk
    """

    def __init__(self, starts: Tensor, chunk: int):
        begun = folded(starts.float(), chunk)[..., None, None]
        counted = begun.cumsum(0)
        self.here, self.down, self.up = 1 - begun, counted == 0, counted == counted[-1]


def _blocks(x: Tensor, a: Tensor) -> list[slice]:
    """The channels in blocks, so many at a time that their states stay small."""
    each = max(1, len(x) * x.shape[1] * a.shape[1])
    width = max(8, _AT_ONCE // each)
    return [slice(start, start + width) for start in range(0, x.shape[-1], width)]


def _states(
    step: Tensor, moved: Tensor, rates: Tensor, b: Tensor, state: Tensor, resets: _Resets | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Decay and states (L, K, B, W, N), the state ahead of each chunk (K, B, W, N), and that behind the last."""
    decay = (step[..., None] * rates).exp_()
    product = (step.cumsum(0)[..., None] * rates).exp_()
    if resets is not None:
        decay.mul_(resets.here)
        product.mul_(resets.down)
    h = moved[..., None] * b[..., None, :]
    for t in range(1, len(h)):
        h[t].addcmul_(decay[t], h[t - 1])
    before = torch.empty_like(h[0])
    for k in range(h.shape[1]):
        before[k] = state
        state = torch.addcmul(h[-1, k], product[-1, k], state)
    return decay, h.addcmul_(product, before), before, state


def _gradients(
    step: Tensor, decay: Tensor, rates: Tensor, g: Tensor, last: Tensor, resets: _Resets | None
) -> tuple[Tensor, Tensor]:
    """The gradient of each state, (L, K, B, W, N), and that of the initial one; `g` holds what each read of its own."""
    for t in range(len(g) - 2, -1, -1):
        g[t].addcmul_(decay[t + 1], g[t + 1])
    passed = step.cumsum(0)
    product = ((passed[-1] - passed)[..., None] * rates).exp_()  # of the decays behind t in its chunk
    if resets is not None:
        product.mul_(resets.up)
    after = torch.empty_like(g[0])  # (K, B, W, N)
    for k in range(g.shape[1] - 1, -1, -1):
        after[k] = last
        last = torch.addcmul(g[0, k], product[0, k], last).mul_(decay[0, k])
    return g.addcmul_(product, after), last
