"""Linear biases: every score loses in proportion to the distance between query and key."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from pydantic import PositiveFloat
from torch import Tensor

from builder.component import Config as BaseConfig
from builder.component import Site
from builder.components.position import Position, reach, served_heads
from builder.finding import Finding, Status
from builder.model.bias import Bias
from builder.model.positions import Positions
from builder.registry import register


@register("position", "alibi")
class ALiBi(Position):
    """score(q, k) - slope_h |q - k| (chapter 3.6; Press et al. 2022).

    slope_h = multiplier 2^(-e_h), the exponents evenly spaced up to max_exponent:

        e_h = max_exponent (h + 1) / m                h < m, m the largest power of two up to H
        e_h = max_exponent (2 (h - m) + 1) / (2 m)    the heads past m: every other one of those for 2 m heads

    Slopes are computed in float32 from the number of the head, so there is nothing that a cast could round.
    """

    needs_heads = True

    class Config(BaseConfig):
        """`max_exponent` is that of the flattest slope; `multiplier` scales all slopes (Falcon: 1 / sqrt(d_head))."""

        name: str = "alibi"
        max_exponent: PositiveFloat = 8.0
        multiplier: PositiveFloat = 1.0

    def __init__(self, config: ALiBi.Config, site: Site):
        super().__init__(config, site)
        self.config, self.heads = config, served_heads(config, site)

    def bias(self, queries: Positions, keys: Positions) -> Bias:
        return Bias(self._at, self.heads, queries, keys)

    def _at(self, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return -self.slopes(head) * (query - key).abs()

    def slopes(self, head: Tensor) -> Tensor:
        """The slope of each head, by its number from 0; float32."""
        power = 2 ** (self.heads.bit_length() - 1)
        twice_power = torch.where(head < power, 2 * (head + 1), 2 * (head - power) + 1)  # of 2 m steps
        exponent = twice_power.float() * (self.config.max_exponent / (2 * power))
        return torch.exp2(-exponent) * self.config.multiplier

    @classmethod
    def check(cls, config: ALiBi.Config, site: Site) -> Iterable[Finding]:
        if site.two_sided:
            rule = "both sides lose alike by |q - k|: what is before can't be told from what is after (chapter 3.6)"
            fix = "model/position=t5, which tells the sides apart"
            yield Finding(Status.WARN, 3, "name", f"alibi, bidirectional, {reach(site)}", rule, fix)
        else:
            rule = "the loss goes on past the train length as before; what is far fades, so it isn't read either"
            yield Finding(Status.PASS, 3, "name", f"alibi, {reach(site)}", rule)
