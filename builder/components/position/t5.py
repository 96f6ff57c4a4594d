"""Learned biases by distance: one number per head and bucket of distances, shared by all layers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Self

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn

from builder.component import Config as BaseConfig
from builder.component import Site, refuse
from builder.components.position import Position, reach, served_heads
from builder.finding import Finding, Status
from builder.model.bias import Bias
from builder.model.positions import Positions
from builder.registry import register


@register("position", "t5")
class T5(Position):
    """score(q, k) + P[bucket(k - q), h], a table P (n_buckets, H) of parameters (chapter 3.6; Raffel et al. 2020).

    With n buckets a direction, n/2 hold one distance each; the rest widen up to max_distance, and the last holds all
    that is farther:

        bucket(d) = d                                                               d < n/2
                    n/2 + floor(n/2 ln(d / (n/2)) / ln(max_distance / (n/2)))       up to n - 1

    Without a causal mask half of the buckets are for keys before the query, half for those after it.
    T5 itself doesn't divide scores by sqrt(d_head): that is the attention's `scale`.
    """

    roles = {"weight": "bias"}
    needs_heads = True

    class Config(BaseConfig):
        """`n_buckets` rows, both directions together; distances from `max_distance` on share one."""

        name: str = "t5"
        n_buckets: Annotated[int, Field(ge=2)] = 32
        max_distance: PositiveInt = 128

        @model_validator(mode="after")
        def _buckets_widen(self) -> Self:
            exact = self.n_buckets // 2
            if self.max_distance <= exact:
                rule = f"half of n_buckets={self.n_buckets} hold one distance each: must be above {exact}"
                refuse("max_distance", self.max_distance, rule, f"max_distance={4 * self.n_buckets}")
            return self

        def shrink(self, site: Site) -> Self:
            small = {"n_buckets": min(self.n_buckets, 8), "max_distance": min(self.max_distance, 8)}
            return self.model_copy(update=small)

    def __init__(self, config: T5.Config, site: Site):
        super().__init__(config, site)
        self.config, self.causal, self.heads = config, not site.two_sided, served_heads(config, site)
        self.weight = nn.Parameter(torch.empty(config.n_buckets, self.heads))  # (N, H)

    def bias(self, queries: Positions, keys: Positions) -> Bias:
        return Bias(self._at, self.heads, queries, keys)

    def _at(self, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return self.weight[self.bucket(key - query), head]

    def bucket(self, offset: Tensor) -> Tensor:
        """The row of the table for key - query, int64 of the same shape."""
        buckets = self.config.n_buckets if self.causal else self.config.n_buckets // 2
        distance = (-offset).clamp_min(0) if self.causal else offset.abs()
        exact = buckets // 2
        wider = torch.log(distance.clamp_min(exact).float() / exact) / math.log(self.config.max_distance / exact)
        far = (exact + (wider * (buckets - exact)).long()).clamp_max(buckets - 1)
        row = torch.where(distance < exact, distance, far)
        return row if self.causal else row + buckets * (offset > 0)

    @classmethod
    def check(cls, config: T5.Config, site: Site) -> Iterable[Finding]:
        buckets, farthest = config.n_buckets, config.max_distance
        if site.two_sided and (buckets % 2 or buckets < 4):
            rule = "half of the buckets are for each direction: their number must be even and at least 4"
            yield Finding(
                Status.FAIL,
                1,
                "n_buckets",
                f"{buckets}, bidirectional",
                rule,
                f"n_buckets={max(buckets + buckets % 2, 4)}",
            )
        found = f"{buckets} buckets up to distance {farthest}, {reach(site)}"
        if site.deploy_length <= site.train_length:
            yield Finding(Status.PASS, 3, "max_distance", found, "every distance that is deployed was trained")
        elif site.train_length > farthest:
            rule = "distances past the train length share the last bucket, which was trained; they can't be told apart"
            yield Finding(Status.PASS, 3, "max_distance", found, rule)
        else:
            rule = "buckets of distances past the train length keep the values that they were drawn with"
            fix = f"a max_distance below {site.train_length}, or model.deploy_length={site.train_length}"
            yield Finding(Status.WARN, 3, "max_distance", found, rule, fix)
