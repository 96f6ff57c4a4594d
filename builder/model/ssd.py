"""A selective scan whose heads decay by one number each: chunks of it are matrix products (state-space duality)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .precision import own_dtype


def ssd(
    x: Tensor, decay: Tensor, b: Tensor, c: Tensor, initial: Tensor | None = None, starts: Tensor | None = None,
    chunk: int = 64,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """y_t = h_t c_t of h_t = exp(decay_t) h_{t-1} + x_t b_t^T, and the last h (Dao & Gu 2024, "Transformers are SSMs").

    x (B, T, H, P), `decay` (B, T, H) at most 0, b and c (B, T, G, N), each for H / G heads, `initial` (B, H, P, N);
    y (B, T, H, P), the last h (B, H, P, N). Nothing of what was is left where `starts` (B, T) is true. What has a decay
    of 0 and an x of 0 leaves the state as it is. Float32 or wider throughout.

        a chunk's own tokens     (C B^T * L) X         L_ts = exp(sum of the decays behind s, up to t), s <= t
        what came before it      C h * exp(sum of the decays up to t)
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    x, decay, b, c = (v.to(wide) for v in (x, decay, b, c))
    state = x.new_zeros(len(x), *x.shape[2:], b.shape[-1]) if initial is None else initial.to(wide)
    if not x.numel():  # the loop over chunks would run for nothing
        return x, state
    with own_dtype(x):
        return _in_chunks(x, decay, b, c, state, starts, min(chunk, max(1, x.shape[1])))


def ssd_flops(length: int, heads: int, width: int, groups: int, size: int, chunk: int) -> int:
    """FLOPs of the products over a sequence of `length` tokens, two for each multiply-add: whole chunks of them."""
    chunk = min(chunk, length)
    steps = -(-length // chunk) * chunk
    return 2 * steps * (chunk * (groups * size + heads * width) + 2 * heads * width * size)


def _in_chunks(
    x: Tensor, decay: Tensor, b: Tensor, c: Tensor, state: Tensor, starts: Tensor | None, chunk: int
) -> tuple[Tensor, Tensor]:
    length, groups, (heads, width) = x.shape[1], b.shape[2], x.shape[2:]
    each = heads // groups
    x, decay, b, c = (_chunked(v, chunk) for v in (x, decay, b, c))  # (B, K, L, ...)
    b, c = b.transpose(2, 3), c.transpose(2, 3)  # (B, K, G, L, N)
    x = x.unflatten(3, (groups, each)).transpose(2, 3)  # (B, K, G, L, J, P), J heads of a group
    passed = decay.cumsum(2).unflatten(3, (groups, each)).transpose(2, 3)  # (B, K, G, L, J)
    apart = None if starts is None else _chunked(starts.int(), chunk).cumsum(2)[:, :, None]  # (B, K, 1, L)

    within = _triangle(passed, apart) * (c @ b.transpose(3, 4))[:, :, :, None]  # (B, K, G, J, L, L)
    y = (within @ x.transpose(3, 4)).transpose(3, 4)  # (B, K, G, L, J, P)

    left = (passed[:, :, :, -1:] - passed).exp()  # of each token, at the end of its chunk
    through, down = passed[:, :, :, -1].exp(), passed.exp()  # (B, K, G, J) and (B, K, G, L, J)
    if apart is not None:
        left = left * (apart == apart[..., -1:])[..., None]
        through, down = through * (apart[..., -1:] == 0), down * (apart == 0)[..., None]
    added = b.transpose(3, 4) @ (x * left[..., None]).flatten(4)  # (B, K, G, N, J P)
    before = []
    h = state.view(-1, groups, each, width, b.shape[-1]).permute(0, 1, 4, 2, 3)  # (B, G, N, J, P)
    added = added.unflatten(4, (each, width))
    for kept, new in zip(through[:, :, :, None, :, None].unbind(1), added.unbind(1), strict=True):
        before.append(h)
        h = torch.addcmul(new, kept, h)
    read = c @ torch.stack(before, 1).flatten(4)  # (B, K, G, L, J P)
    y = torch.addcmul(y, read.unflatten(4, (each, width)), down[..., None])
    y = y.transpose(2, 3).flatten(3, 4).flatten(1, 2)[:, :length]  # (B, T, H, P)
    return y, h.permute(0, 1, 3, 4, 2).flatten(1, 2)  # (B, H, P, N)


def _triangle(passed: Tensor, apart: Tensor | None) -> Tensor:
    """What is left at t of a token at s, (B, K, G, J, L, L); passed (B, K, G, L, J), documents apart (B, K, 1, L)."""
    passed = passed.transpose(3, 4)  # (B, K, G, J, L)
    token = torch.arange(passed.shape[-1], device=passed.device)
    seen = token[:, None] >= token  # (L, L)
    if apart is not None:
        seen = seen & (apart[..., None] == apart[..., None, :])[:, :, :, None]  # (B, K, 1, 1, L, L)
    # hidden before the exponential, which would overflow there
    return (passed[..., None] - passed[..., None, :]).masked_fill(~seen, -torch.inf).exp()


def _chunked(v: Tensor, chunk: int) -> Tensor:
    """(B, T, ...) as (B, K, L, ...), L = `chunk`, filled up with zeros."""
    chunks = -(-v.shape[1] // chunk)
    if short := chunks * chunk - v.shape[1]:
        v = F.pad(v, (0, 0) * (v.dim() - 2) + (0, short))
    return v.unflatten(1, (chunks, chunk))
