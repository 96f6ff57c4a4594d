"""Rotary positions: queries and keys are turned, so that their product depends on their distance."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from builder.component import Config as BaseConfig
from builder.component import Site
from builder.components.position import Position, reach
from builder.finding import Finding, Status
from builder.model.positions import Positions
from builder.registry import register


@register("position", "rope")
class RoPE(Position):
    """q_p = R(p) q, k_s = R(s) k, so that q_p . k_s = q . R(s - p) k (chapter 3.6; Su et al. 2021).

    R(p) turns each pair (i, i + r/2) of the first r coordinates of a head by p theta^(-2i / r), r = fraction * E.
    Angles are computed in float32 whatever the model's dtype: in bfloat16 most positions past 256 coincide.
    """

    class Config(BaseConfig):
        """`theta` sets the longest wave; `fraction` of the head width is turned, the rest carries no position."""

        name: str = "rope"
        theta: PositiveFloat = 10000.0
        fraction: Annotated[float, Field(gt=0, le=1)] = 1.0

        def width(self, d_head: int) -> int:
            """How many coordinates of a head are turned."""
            return int(d_head * self.fraction)

    def __init__(self, config: RoPE.Config, site: Site):
        super().__init__(config, site)
        self.config = config

    def rotate(self, x: Tensor, positions: Positions) -> Tensor:
        width = self.config.width(x.shape[-1])
        key = ("rope", self.config.theta, width)
        cos, sin = positions.once(key, lambda: self._turns(width, positions.ids))  # (B, T, 1, r/2)
        first, second, rest = x.split((width // 2, width // 2, x.shape[-1] - width), dim=-1)
        turned = (first * cos - second * sin, second * cos + first * sin)
        return torch.cat((*(part.to(x.dtype) for part in turned), rest), dim=-1)  # (B, T, H, E)

    def _turns(self, width: int, positions: Tensor) -> tuple[Tensor, Tensor]:
        exponent = torch.arange(0, width, 2, device=positions.device, dtype=torch.float32) / width  # (r/2,)
        angles = positions[..., None, None].float() * self.config.theta**-exponent  # (B, T, 1, r/2)
        return angles.cos(), angles.sin()

    @classmethod
    def misfit(cls, config: RoPE.Config, d_head: int) -> str | None:
        width = config.width(d_head)
        if width < 2 or width % 2:
            return f"rope turns pairs: its width, {config.fraction:g} * {d_head} = {width}, must be even and at least 2"
        return None

    @classmethod
    def check(cls, config: RoPE.Config, site: Site) -> Iterable[Finding]:
        found = f"theta {config.theta:g}, {reach(site)}"
        if site.deploy_length > site.train_length:
            rule = "angles past the train length were never seen; a tensor that runs is no model that reads that far"
            fix = f"model.deploy_length={site.train_length}, or train longer"
            yield Finding(Status.WARN, 3, "theta", found, rule, fix)
        else:
            yield Finding(Status.PASS, 3, "theta", found, "every distance that is deployed was trained")
