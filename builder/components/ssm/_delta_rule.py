"""The gated delta rule over a sequence: chunk by chunk in matrix products, a single token by the recurrence."""

from __future__ import annotations

import torch
from torch import Tensor

from builder.model.precision import own_dtype

from ._chunks import chunks, cut, joined, left


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, log: Tensor, beta: Tensor, state: Tensor | None, starts: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """S_t = e^g_t (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T, y_t = q_t S_t: all y (B, T, H, V), and the last S.

    q and k (B, T, H, N), v (B, T, H, V), `log` g and beta (B, T, H), `state` ahead of them (B, H, N, V), `starts` of
    documents (B, T). All in one dtype, float32 or wider. With beta 0 and g 0 a token leaves the state as it is.
    """
    state = v.new_zeros(len(v), v.shape[2], k.shape[-1], v.shape[-1]) if state is None else state
    if not v.numel():  # the loop over chunks would run for nothing
        return v, state
    with own_dtype(q):  # it would multiply in a lower dtype
        if q.shape[1] == 1 and starts is None:
            return _step(q[:, 0], k[:, 0], v[:, 0], log[:, 0], beta[:, 0], state)
        return _chunked(q, k, v, log, beta, state, starts)


def multiplied(tokens: int, keys: int, values: int) -> int:
    """Multiply-adds of the matrix products for one head; the solution of a triangular system counts as none."""
    if tokens == 1:
        return 2 * keys * values
    count, size = chunks(tokens)
    return count * size * (2 * size * keys + 3 * keys * values + size * values)


def _step(q: Tensor, k: Tensor, v: Tensor, log: Tensor, beta: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """One token, q and k (B, H, N), v (B, H, V)."""
    state = state * log.exp()[..., None, None]
    missing = (v - (k[:, :, None] @ state)[:, :, 0]) * beta[..., None]  # (B, H, V), what is to be read at k and isn't
    state = state + k[..., None] * missing[:, :, None]
    return (q[:, :, None] @ state).transpose(1, 2), state  # (B, 1, H, V)


def _chunked(
    q: Tensor, k: Tensor, v: Tensor, log: Tensor, beta: Tensor, state: Tensor, starts: Tensor | None
) -> tuple[Tensor, Tensor]:
    """A chunk writes W = U - Y S, S the state ahead of it, with (I + A) [U, Y] = [beta v, beta e^g.. k] and A_ij the
    part of what j wrote that i finds again at its key: the WY form of a product of reflections (Yang et al. 2024)."""
    length, width = q.shape[1], v.shape[-1]
    decay = left(cut(log), starts)
    q, k, v, beta = cut(q), cut(k), cut(v), cut(beta)[..., None]  # (B, H, n, L, ...)
    kept = beta * k
    found = (kept @ k.mT) * decay.inside  # (B, H, n, L, L); its diagonal isn't read
    right = torch.cat((beta * v, kept * decay.entering), dim=-1)
    own, read = torch.linalg.solve_triangular(found, right, upper=False, unitriangular=True).split(
        (width, k.shape[-1]), dim=-1
    )
    handed, ahead, written = (k * decay.leaving).mT, [], []
    for own_c, read_c, handed_c, whole in zip(*(x.unbind(2) for x in (own, read, handed, decay.whole)), strict=True):
        ahead.append(state)
        written.append(own_c - read_c @ state)  # (B, H, L, V)
        state = whole * state + handed_c @ written[-1]
    within = ((q @ k.mT) * decay.inside) @ torch.stack(written, dim=2)
    y = within + (q * decay.entering) @ torch.stack(ahead, dim=2)  # (B, H, n, L, V)
    return joined(y, length), state
