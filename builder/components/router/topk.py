"""Each token goes to the k experts that score highest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from pydantic import model_validator
from torch import Tensor

from builder.component import Site, refuse
from builder.components.router import Router, RouterConfig, Routing
from builder.finding import Finding, Status
from builder.model.dispatch import ByToken
from builder.model.seats import Seats
from builder.registry import register

Score = Literal["softmax", "sigmoid"]
_TINY = 1e-20  # where every score of a token is 0
Weights = Literal["renormalised", "plain", "selected"]


@register("router", "topk")
class TopK(Router):
    """S(x) = TopK{p_e(x)}, and expert e of S weighs p_e / sum_{j in S} p_j (chapter 3.9; Shazeer et al. 2017).

    Equal scores still give k different experts.
    """

    class Config(RouterConfig):
        """How a token scores the experts and weighs those that it goes to.

        score      softmax: p over all experts; sigmoid: each by itself (DeepSeek-V3)
        weights    renormalised: the scores of the chosen, made to sum to 1 (chapter 3.9); plain: as they are;
                   selected: a softmax over the logits of the chosen (gpt-oss)
        """

        name: str = "topk"
        score: Score = "softmax"
        weights: Weights = "renormalised"

        @model_validator(mode="after")
        def _one_function_of_a_logit(self):
            if self.score == "sigmoid" and self.weights == "selected":
                rule = "weights=selected is a softmax over logits, and the score is another function of them"
                refuse("weights", self.weights, rule, "weights=renormalised, or score=softmax")
            return self

    def __init__(self, config: Any, d_model: int, n_experts: int, top_k: int, learns: bool = False):
        super().__init__(config, d_model, n_experts, top_k, learns)
        self.score: Score
        self.weights: Weights
        self.score, self.weights = self.scored_by(config)

    @classmethod
    def scored_by(cls, config: Any) -> tuple[Score, Weights]:
        """How a config of this router has tokens score experts, and weigh them."""
        return config.score, config.weights

    def route(self, x: Tensor, real: Tensor | None, seats: Seats | None) -> Routing:
        logits = self.logits(x)
        scores = logits.softmax(-1) if self.score == "softmax" else logits.sigmoid()  # (N, X)
        preferred = self.prefer(scores.detach())
        chosen = preferred.topk(self.top_k, dim=-1).indices  # (N, k)
        if real is not None:
            chosen = torch.where(real[:, None], chosen, self.n_experts)
        going, over, dropped = chosen, chosen.new_zeros(()), chosen.new_zeros(())
        if seats is not None:
            placed = seats.place(preferred, chosen)
            going, over, dropped = placed.experts, placed.over, placed.dropped
        nobody = None if real is None and seats is None else going == self.n_experts  # (N, k)
        moved = seats is not None and seats.overflow == "reroute"
        weights = self.weigh(logits, scores, going if moved else chosen, nobody if moved else None)
        weights = weights if nobody is None else weights.masked_fill(nobody, 0)
        return Routing(
            dispatch=ByToken(going, weights, self.n_experts, full=nobody is None),
            logits=logits,
            probabilities=scores if self.score == "softmax" else scores / (scores.sum(-1, keepdim=True) + _TINY),
            chosen=chosen,
            over=over,
            dropped=dropped,
        )

    def prefer(self, scores: Tensor) -> Tensor:
        """By what experts are chosen, from their scores (N, X): -inf where one can't be; no gradient passes."""
        return scores if self.preference is None else scores + self.preference

    def weigh(self, logits: Tensor, scores: Tensor, experts: Tensor, nobody: Tensor | None = None) -> Tensor:
        """The weights (N, k) of the experts (N, k) that tokens go to; whatever where `nobody` (N, k) is true."""
        index = experts.clamp_max(self.n_experts - 1)
        return _WEIGH[self.weights](logits.gather(1, index), scores.gather(1, index), nobody)  # (N, k)

    @classmethod
    def judge(cls, config: Any, n_experts: int, top_k: int, site: Site) -> Iterable[Finding]:
        _, weights = cls.scored_by(config)
        if top_k == 1 and weights != "plain":
            rule = "the weight of the one expert is always 1: no gradient of the task reaches the router"
            fix = "router={name: switch}, or {name: topk, weights: plain}"
            yield Finding(Status.WARN, 5, "router", f"{weights}, with top_k 1", rule, fix)


def _plain(logits: Tensor, scores: Tensor, nobody: Tensor | None) -> Tensor:
    return scores


def _renormalised(logits: Tensor, scores: Tensor, nobody: Tensor | None) -> Tensor:
    scores = scores if nobody is None else scores.masked_fill(nobody, 0)
    return scores / (scores.sum(-1, keepdim=True) + _TINY)


def _selected(logits: Tensor, scores: Tensor, nobody: Tensor | None) -> Tensor:
    logits = logits if nobody is None else logits.masked_fill(nobody, torch.finfo(logits.dtype).min)
    return logits.softmax(-1)


_WEIGH: dict[Weights, Callable[[Tensor, Tensor, Tensor | None], Tensor]] = {
    "plain": _plain,
    "renormalised": _renormalised,
    "selected": _selected,
}
