"""LongRoPE: each frequency has a divisor of its own, found by search, one list for short and one for long sequences."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from builder.component import Site
from builder.components.scaling import Factor, Scaling, ScalingConfig, unscaled
from builder.registry import register

Divisors = Annotated[tuple[PositiveFloat, ...], Field(strict=False, min_length=1)]


@register("scaling", "longrope")
class LongRoPE(Scaling):
    """w_i / long_factor[i] when the sequence may hold more tokens than L, else w_i / short_factor[i].

    Cosines and sines are multiplied by sqrt(1 + ln(factor) / ln(L)), L the original length (Ding et al. 2024).
    The list is chosen when the state is made: the same text in a longer state may be turned at other speeds.
    """

    waits = True

    class Config(ScalingConfig):
        """The knobs of LongRoPE; each list has an entry for each pair of coordinates that is turned.

        original_length   None: the model's train_length
        factor            None: deploy_length / original length
        attention_factor  None: from the factor
        """

        name: str = "longrope"
        short_factor: Divisors
        long_factor: Divisors
        factor: Factor | None = None
        attention_factor: PositiveFloat | None = None

        def stretched(self, site: Site) -> int:
            """The length that these frequencies are made for."""
            return site.deploy_length if self.factor is None else int(self.factor * self.original(site))

    def __init__(self, config: LongRoPE.Config, site: Site):
        super().__init__(config, site)
        self.stretch = site.deploy_length / self.original if config.factor is None else config.factor

    @property
    def factor(self) -> float:
        if self.config.attention_factor is not None:
            return self.config.attention_factor
        if self.stretch <= 1 or self.original <= 1:
            return 1.0
        return math.sqrt(1 + math.log(self.stretch) / math.log(self.original))

    def frequencies(self, theta: float, width: int, reach: int | Tensor, device: torch.device) -> Tensor:
        waves = unscaled(theta, width, device)
        if not isinstance(reach, Tensor):
            return waves / self._divisors(reach > self.original, device)
        long, short = (self._divisors(choice, device) for choice in (True, False))
        return waves / torch.where(reach > self.original, long, short)

    def _divisors(self, long: bool, device: torch.device) -> Tensor:
        """One of the two lists, (width / 2,); on its way to a GPU nobody waits for it."""
        divisors = torch.tensor(self.config.long_factor if long else self.config.short_factor, dtype=torch.float32)
        return divisors.to(device, non_blocking=True)

    @classmethod
    def misfit(cls, config: LongRoPE.Config, width: int) -> str | None:
        for key in ("short_factor", "long_factor"):
            if (entries := len(getattr(config, key))) != width // 2:
                return f"longrope divides each pair's frequency: {key} has {entries} entries for {width // 2} pairs"
        return None
