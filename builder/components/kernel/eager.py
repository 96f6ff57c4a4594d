"""The reference kernel: chapter 3.2.2 written out, every score and weight in memory."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from builder.components.kernel import Case, Kernel, Scoring
from builder.model.bias import Bias
from builder.model.precision import own_dtype
from builder.registry import register


def masked_softmax(scores: Tensor, visible: Tensor | None) -> Tensor:
    """Stable softmax over the visible set of each row (chapter 3.2.2).

        a_ij = exp(s_ij - m_i) / sum_r exp(s_ir - m_i),   m_i = max_j s_ij,   j and r visible

    scores (..., S), visible broadcastable bool or None for all. Invisible weights are exactly 0; a row that sees
    nothing is all zeros, with zero gradients, where the bare formula gives 0/0.
    """
    if visible is None:
        return torch.softmax(scores, dim=-1)
    scores = scores.masked_fill(~visible, -torch.inf)
    largest = scores.amax(dim=-1, keepdim=True).detach()
    exponentials = torch.exp(scores - largest.masked_fill(largest == -torch.inf, 0.0))
    total = exponentials.sum(dim=-1, keepdim=True)
    return exponentials / total.masked_fill(total == 0, 1.0)


@register("kernel", "eager")
class Eager(Kernel):
    """softmax over the visible set of (cap(q k^T scale) + bias), in float32 or wider, times v (chapter 3.2)."""

    @staticmethod
    def attend(q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        weights = F.dropout(weigh(q, k, scoring), scoring.dropout)  # (B, H, T, S)
        shared = weights.to(v.dtype).unflatten(1, (k.shape[2], -1))  # (B, K, H/K, T, S)
        return torch.einsum("bkgts,bskv->btkgv", shared, v).flatten(2, 3)  # (B, T, H, Ev)

    @staticmethod
    def speed(case: Case) -> int:
        return 0


def weigh(q: Tensor, k: Tensor, scoring: Scoring) -> Tensor:
    """The attention weights, (B, H, T, S): each row sums to 1, less what its sink takes."""
    wide = torch.promote_types(q.dtype, torch.float32)
    grouped = q.to(wide).unflatten(2, (k.shape[2], -1))  # (B, T, K, H/K, E)
    with own_dtype(q):  # it would round the scores again
        scores = torch.einsum("btkge,bske->bkgts", grouped, k.to(wide)).flatten(1, 2) * scoring.scale  # (B, H, T, S)
    if scoring.softcap is not None:
        scores = scoring.softcap * torch.tanh(scores / scoring.softcap)  # (B, H, T, S)
    if scoring.bias is not None:
        scores = scores + (scoring.bias.dense() if isinstance(scoring.bias, Bias) else scoring.bias)
    causal, visible = scoring.mask.lower(q.shape[1], k.shape[1], q.device)
    if causal:  # the reference needs the tensor that faster kernels do without
        visible = scoring.mask.dense(q.shape[1], k.shape[1], q.device)
    if scoring.sinks is None:
        return masked_softmax(scores, visible)
    sink = scoring.sinks.to(wide)[:, None, None].expand(len(scores), -1, q.shape[1], 1)  # (B, H, T, 1)
    visible = None if visible is None else F.pad(visible, (0, 1), value=True)  # (B | 1, 1, T, S + 1)
    return masked_softmax(torch.cat((scores, sink), dim=-1), visible)[..., :-1]  # (B, H, T, S)
