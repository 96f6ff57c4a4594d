"""The kernel that is compiled for what it computes: torch's FlexAttention, which skips blocks that nobody sees."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from builder.components.kernel import Case, Kernel, Scoring
from builder.model.bias import Bias
from builder.registry import register


@register("kernel", "flex")
class Flex(Kernel):
    """The exact function of the eager kernel, its mask, bias and soft-cap fused into it (Dong et al. 2024).

    On a GPU it is compiled; on a CPU it has no backward and is a check of the others.
    """

    @staticmethod
    def attend(q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        from torch.nn.attention.flex_attention import AuxRequest

        out, aux = _function(q.device.type)(
            q.transpose(1, 2),  # (B, H, T, E)
            k.transpose(1, 2),  # (B, K, S, E)
            v.transpose(1, 2),  # (B, K, S, Ev)
            score_mod=_score(scoring),
            block_mask=scoring.mask.blocks(q.shape[1], k.shape[1], q.device),
            scale=scoring.scale,
            enable_gqa=q.shape[2] != k.shape[2],
            return_aux=AuxRequest(lse=scoring.sinks is not None),
        )
        if scoring.sinks is not None:  # exp(lse) / (exp(lse) + exp(sink)) is what the sink leaves of the weights
            left = torch.sigmoid(aux.lse - scoring.sinks[:, None])  # (B, H, T)
            out = out * left[..., None].to(out.dtype)
        return out.transpose(1, 2)  # (B, T, H, Ev)

    @staticmethod
    def refuses(case: Case) -> str | None:
        if case.dropout:
            return "flex has no dropout of attention weights"
        if case.device == "cpu" and case.grad:
            return "flex has no backward on a CPU"
        if case.device == "cuda" and case.width < 16:
            return f"flex on a GPU needs heads of 16 or wider, and these have {case.width}"
        return None

    @staticmethod
    def speed(case: Case) -> int:
        # a state grows with each token, and each length would be compiled anew
        return 2 if case.device == "cuda" and not case.single else -1


def _score(scoring: Scoring) -> Any:
    """What is done to one score, or None."""
    cap, bias = scoring.softcap, scoring.bias
    if cap is None and bias is None:
        return None
    added = _added(bias) if bias is not None else None

    def change(score: Tensor, b: Tensor, h: Tensor, t: Tensor, s: Tensor) -> Tensor:
        score = score if cap is None else cap * torch.tanh(score / cap)
        return score if added is None else score + added(b, h, t, s)

    return change


def _added(bias: Bias | Tensor) -> Any:
    if isinstance(bias, Tensor):
        return lambda b, h, t, s: bias[b % len(bias), h, t, s]
    queries, keys = bias.queries.ids, bias.keys.ids  # (B | 1, T), (B | 1, S)
    return lambda b, h, t, s: bias.at(h, queries[b % len(queries), t], keys[b % len(keys), s])


@cache
def _function(device: str) -> Any:
    from torch.nn.attention.flex_attention import flex_attention  # imports the compiler, which few runs need

    return flex_attention if device == "cpu" else torch.compile(flex_attention)
