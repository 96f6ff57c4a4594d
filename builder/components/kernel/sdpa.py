"""The kernel that runs everywhere: torch's scaled_dot_product_attention, flash attention where it can."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from builder.components.kernel import Case, Kernel, Scoring
from builder.registry import register


@register("kernel", "sdpa")
class SDPA(Kernel):
    """The exact function of the eager kernel without its scores in memory (chapter 3.4; Dao et al. 2022).

    A mask that no flag expresses, a bias and sinks are read as one tensor; a soft-cap lies inside of its arithmetic and
    can't be had.
    """

    @staticmethod
    def attend(q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        causal, added = _added(q, k, scoring)
        if scoring.sinks is not None:  # one more key, of nothing: its score is what is added
            k, v = F.pad(k, (0, 0, 0, 0, 0, 1)), F.pad(v, (0, 0, 0, 0, 0, 1))  # (B, S + 1, K, E)
        out = F.scaled_dot_product_attention(
            q.transpose(1, 2),  # (B, H, T, E)
            k.transpose(1, 2),  # (B, K, S, E)
            v.transpose(1, 2),  # (B, K, S, Ev)
            attn_mask=added,
            dropout_p=scoring.dropout,
            is_causal=causal,
            scale=scoring.scale,
            enable_gqa=q.shape[2] != k.shape[2],
        )
        return out.transpose(1, 2)  # (B, T, H, Ev)

    @staticmethod
    def refuses(case: Case) -> str | None:
        return "sdpa has no soft-cap" if case.softcap else None

    @staticmethod
    def speed(case: Case) -> int:
        return 3 if case.flag and not (case.bias or case.sinks) else 1


def _added(q: Tensor, k: Tensor, scoring: Scoring) -> tuple[bool, Tensor | None]:
    """The flag and the tensor, never both: (B | 1, 1 | H, T, S), with one more column where there are sinks."""
    queries, keys, mask = q.shape[1], k.shape[1], scoring.mask
    if scoring.bias is None and scoring.sinks is None:
        return mask.lower(queries, keys, q.device)
    added = mask.fold(scoring.bias, queries, keys, like=q)  # (B | 1, H | 1, T, S)
    if scoring.sinks is not None:
        heads = len(scoring.sinks)
        sink = scoring.sinks.to(q.dtype)[:, None, None].expand(len(added), heads, queries, 1)
        added = torch.cat((added.expand(-1, heads, -1, -1), sink), dim=-1)  # (B | 1, H, T, S + 1)
    return False, added
