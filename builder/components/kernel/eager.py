"""The reference kernel: chapter 3.2.2 written out, every score and weight in memory."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from builder.components.kernel import Kernel
from builder.model.mask import Mask
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
    """softmax over the visible set of (q k^T scale + bias), in float32 or wider, times v (chapter 3.2)."""

    @staticmethod
    def attend(
        q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None, scale: float, dropout: float
    ) -> Tensor:
        groups = q.shape[2] // k.shape[2]
        k = k.repeat_interleave(groups, dim=2)  # (B, S, H, E)
        v = v.repeat_interleave(groups, dim=2)  # (B, S, H, E)
        wide = torch.promote_types(q.dtype, torch.float32)
        scores = torch.einsum("bthe,bshe->bhts", q.to(wide), k.to(wide)).to(wide) * scale  # (B, H, T, S)
        if bias is not None:
            scores = scores + bias
        causal, visible = mask.lower(q.shape[1], k.shape[1], q.device)
        if causal:  # the reference needs the tensor that faster kernels do without
            visible = mask.dense(q.shape[1], k.shape[1], q.device)
        weights = F.dropout(masked_softmax(scores, visible), dropout)
        return torch.einsum("bhts,bshe->bthe", weights.to(v.dtype), v)  # (B, T, H, E)
