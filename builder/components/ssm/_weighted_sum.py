"""A sum over what was read so far, weighed by q k and decayed: chunk by chunk, a single token by the recurrence."""

from __future__ import annotations

import torch
from torch import Tensor

from builder.model.precision import own_dtype

from ._chunks import chunks, cut, joined, left


def weighted_sum(
    q: Tensor, k: Tensor, v: Tensor, log: Tensor, state: Tensor | None, starts: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """S_t = e^g_t S_{t-1} + k_t v_t^T, y_t = q_t S_t: all y (B, T, H, V), and the last S.

    q and k (B, T, H, N), v (B, T, H, V), `log` g (B | 1, T, H | 1), none above 0, `state` ahead of them (B, H, N, V),
    `starts` of documents (B, T). All in one dtype, float32 or wider.
    """
    state = v.new_zeros(len(v), v.shape[2], k.shape[-1], v.shape[-1]) if state is None else state
    if not v.numel():  # the shape ledger's batch of no rows
        return v, state
    with own_dtype(q):  # it would multiply in a lower dtype
        if q.shape[1] == 1 and starts is None:
            state = log[:, 0, :, None, None].exp() * state + k[:, 0, ..., None] * v[:, 0, :, None]
            return (q[:, 0, :, None] @ state).transpose(1, 2), state
        return _chunked(q, k, v, log, state, starts)


def multiplied(tokens: int, keys: int, values: int) -> int:
    """Multiply-adds of the matrix products for one head."""
    if tokens == 1:
        return keys * values
    count, size = chunks(tokens)
    return count * size * (size * keys + 2 * keys * values + size * values)


def _chunked(
    q: Tensor, k: Tensor, v: Tensor, log: Tensor, state: Tensor, starts: Tensor | None
) -> tuple[Tensor, Tensor]:
    length, decay = q.shape[1], left(cut(log), starts)
    q, k, v = cut(q), cut(k), cut(v)  # (B, H, n, L, ...)
    added, ahead = (k * decay.leaving).mT @ v, []  # (B, H, n, N, V)
    for added_c, whole in zip(added.unbind(2), decay.whole.unbind(2), strict=True):
        ahead.append(state)
        state = whole * state + added_c
    y = ((q @ k.mT) * decay.inside) @ v + (q * decay.entering) @ torch.stack(ahead, dim=2)  # (B, H, n, L, V)
    return joined(y, length), state
