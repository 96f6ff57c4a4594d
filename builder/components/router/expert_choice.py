"""Each expert takes the tokens that score it highest, as many as every other expert."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from builder.component import Site
from builder.components.router import Router, RouterConfig, Routing
from builder.finding import Finding, Status
from builder.model.dispatch import ByExpert
from builder.model.seats import Seats, capacity
from builder.registry import register


@register("router", "expert_choice")
class ExpertChoice(Router):
    """Expert e takes the C = N k / X tokens of the pass with the largest p_e(x), weighed by it (Zhou et al. 2022).

    A token goes to k experts in the mean, to none at worst. Whether it is taken depends on all tokens of the pass, on
    later ones too: a decoder that routes like this reads what it is to predict.
    """

    balanced = True
    rows_compete = True

    class Config(RouterConfig):
        """The knobs of every router."""

        name: str = "expert_choice"

    def route(self, x: Tensor, real: Tensor | None, seats: Seats | None) -> Routing:
        logits = self.logits(x)
        scores = logits.softmax(-1)  # (N, X)
        offered = scores if real is None else scores.masked_fill(~real[:, None], -torch.inf)
        places = capacity(len(x), self.top_k, self.n_experts, 1.0)
        weights, tokens = offered.T.topk(min(places, len(x)), dim=-1)  # (X, C), the best first
        taken = torch.ones_like(tokens, dtype=torch.bool)
        if real is not None:  # padding has no part in the number of places
            share = -(-real.sum() * self.top_k // self.n_experts)
            taken = (torch.arange(tokens.shape[1], device=x.device) < share) & (weights > -torch.inf)
        weights = torch.where(taken, weights, 0)
        found = torch.zeros(len(x), device=x.device).scatter_reduce(
            0, tokens.flatten(), taken.flatten().float(), "amax"
        )
        lost = (found == 0) if real is None else (found == 0) & real
        return Routing(
            dispatch=ByExpert(tokens, weights, len(x)),
            logits=logits,
            probabilities=scores,
            chosen=None,
            over=tokens.new_zeros(()),
            dropped=lost.sum() * self.top_k,  # a token is as much as its k choices
            taken=taken.sum(-1),
        )

    def rows(self, tokens: int) -> int:
        return self.n_experts * capacity(tokens, self.top_k, self.n_experts, 1.0)

    @classmethod
    def judge(cls, config: Any, n_experts: int, top_k: int, site: Site) -> Iterable[Finding]:
        if site.causal:
            rule = "each expert takes the best tokens of the whole pass, so whether one is taken tells of later ones"
            yield Finding(Status.FAIL, 2, "router", "expert_choice in a decoder", rule, "router={name: topk}")
