"""Each token goes to the k best experts of its best groups, so that it meets few devices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor

from builder.component import Site
from builder.components.router.topk import TopK
from builder.finding import Finding, Status
from builder.registry import register

GroupScore = Literal["best", "two"]
_BEST: dict[GroupScore, int] = {"best": 1, "two": 2}
_PLAIN = "router={name: topk}"


@register("router", "grouped_topk")
class GroupedTopK(TopK):
    """topk among the experts of the `top_groups` best of `n_groups` groups (DeepSeek-AI 2024, "DeepSeek-V2" and "V3").

    Expert e is in group e // (X / n_groups), as experts lie on devices. The groups are compared, like the experts, by
    the scores with the preference added.
    """

    class Config(TopK.Config):
        """The knobs of topk, and of the groups.

        n_groups       divides n_experts
        top_groups     how many of them a token may go to
        group_score    of a group: best, its best expert's (V2); two, the sum of its best two (V3)
        """

        name: str = "grouped_topk"
        n_groups: PositiveInt
        top_groups: PositiveInt
        group_score: GroupScore = "two"

    def __init__(self, config: Any, d_model: int, n_experts: int, top_k: int, learns: bool = False):
        super().__init__(config, d_model, n_experts, top_k, learns)
        self.n_groups, self.top_groups, self.group_score = config.n_groups, config.top_groups, config.group_score

    def prefer(self, scores: Tensor) -> Tensor:
        grouped = super().prefer(scores).unflatten(-1, (self.n_groups, -1))  # (N, groups, X / groups)
        worth = grouped.topk(_BEST[self.group_score], dim=-1).values.sum(-1)  # (N, groups)
        searched = torch.zeros_like(worth).scatter(1, worth.topk(self.top_groups, dim=-1).indices, 1).bool()
        return grouped.masked_fill(~searched[..., None], -torch.inf).flatten(-2)  # (N, X)

    @classmethod
    def judge(cls, config: Any, n_experts: int, top_k: int, site: Site) -> Iterable[Finding]:
        groups, top, each = config.n_groups, config.top_groups, n_experts // config.n_groups
        if n_experts % groups:
            fitting = [n for n in range(1, n_experts + 1) if n_experts % n == 0]
            rule = f"it must divide n_experts={n_experts}: one of {', '.join(map(str, fitting))}"
            near = min(fitting, key=lambda n: abs(n - groups))
            yield _misfit("n_groups", groups, rule, f"router.n_groups={near}")
        elif top > groups:
            yield _misfit("top_groups", top, f"at most the n_groups={groups} there are", f"router.top_groups={groups}")
        elif each < _BEST[config.group_score]:
            rule = f"a group holds {each} expert, and its best two are asked for"
            yield _misfit("group_score", config.group_score, rule, "router.group_score=best")
        elif top_k > top * each:
            rule = f"{top} groups of {each} experts hold too few for top_k={top_k}"
            yield _misfit("top_groups", top, rule, f"router.top_groups={-(-top_k // each)}")
        elif top == groups or (top_k <= top and _BEST[config.group_score] == 1):
            why = (
                "all groups are searched"
                if top == groups
                else f"the {top_k} best experts lie in the best groups anyway"
            )
            found = f"{top} of {groups}, compared by {config.group_score}"
            yield Finding(Status.WARN, 5, "router.top_groups", found, f"the groups limit nothing: {why}", _PLAIN)
        else:
            rule = f"a token meets at most {top} groups, as many devices when each holds one"
            yield Finding(Status.PASS, 5, "router.top_groups", f"{top} of {groups}, of {each} experts each", rule)
        yield from super().judge(config, n_experts, top_k, site)


def _misfit(key: str, found: object, rule: str, fix: str) -> Finding:
    return Finding(Status.FAIL, 5, f"router.{key}", str(found), rule, fix)
