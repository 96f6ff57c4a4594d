"""The fast kernel: torch's scaled_dot_product_attention, which picks flash attention where it can."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from builder.components.kernel import Kernel
from builder.model.mask import Mask
from builder.registry import register


@register("kernel", "sdpa")
class SDPA(Kernel):
    """The exact function of the eager kernel without its T x S tensors (chapter 3.4; Dao et al. 2022)."""

    @staticmethod
    def attend(
        q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None, scale: float, dropout: float
    ) -> Tensor:
        causal, visible = mask.lower(q.shape[1], k.shape[1], q.device)
        if bias is not None:  # a kernel takes one of mask and flag, never both: fold what is visible into the bias
            visible = mask.dense(q.shape[1], k.shape[1], q.device) if causal else visible
            hidden = 0.0 if visible is None else torch.where(visible, 0.0, -torch.inf)
            visible, causal = (bias + hidden).to(q.dtype), False
        out = F.scaled_dot_product_attention(
            q.transpose(1, 2),  # (B, H, T, E)
            k.transpose(1, 2),  # (B, K, S, E)
            v.transpose(1, 2),  # (B, K, S, E)
            attn_mask=visible,
            dropout_p=dropout,
            is_causal=causal,
            scale=scale,
            enable_gqa=q.shape[2] != k.shape[2],
        )
        return out.transpose(1, 2)  # (B, T, H, E)
