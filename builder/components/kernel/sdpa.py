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
        if q.shape[1] == 1:
            return _single(q, k, v, added, scoring)
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


def _single(q: Tensor, k: Tensor, v: Tensor, added: Tensor | None, scoring: Scoring) -> Tensor:
    """One query of each row: the heads that share keys read them together, as if they were queries of one head."""
    batch, _, heads, width = q.shape
    kv_heads = k.shape[2]
    if added is not None and added.shape[1] > 1:
        added = added.unflatten(1, (kv_heads, -1)).squeeze(3)  # (B | 1, K, H/K, S)
    out = F.scaled_dot_product_attention(
        q.reshape(batch, kv_heads, heads // kv_heads, width),  # (B, K, H/K, E)
        k.transpose(1, 2),  # (B, K, S, E)
        v.transpose(1, 2),  # (B, K, S, Ev)
        attn_mask=added,
        dropout_p=scoring.dropout,
        scale=scoring.scale,
    )
    return out.reshape(batch, 1, heads, v.shape[-1])  # (B, 1, H, Ev)


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
