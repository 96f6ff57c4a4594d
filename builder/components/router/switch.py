"""Each token goes to one expert, by its probability."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from builder.component import Site
from builder.components.router import RouterConfig
from builder.components.router.topk import Score, TopK, Weights
from builder.finding import Finding, Status
from builder.registry import register


@register("router", "switch")
class Switch(TopK):
    """y = p_e(x) E_e(x), e = argmax p(x): the weight is p itself, so the task's gradient reaches the router.

    (Fedus, Zoph & Shazeer 2021, section 2.1; chapter 3.9)
    """

    class Config(RouterConfig):
        """The knobs of every router; the paper trains with `jitter` 0.01."""

        name: str = "switch"

    @classmethod
    def scored_by(cls, config: Any) -> tuple[Score, Weights]:
        return "softmax", "plain"

    @classmethod
    def judge(cls, config: Any, n_experts: int, top_k: int, site: Site) -> Iterable[Finding]:
        if top_k != 1:
            rule = "a switch sends each token to one expert"
            yield Finding(Status.FAIL, 5, "top_k", str(top_k), rule, "top_k=1, or router={name: topk}")
