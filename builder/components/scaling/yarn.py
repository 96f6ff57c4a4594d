"""YaRN: slow waves are interpolated, fast ones kept, with a ramp between them, and scores are sharpened."""

from __future__ import annotations

import math
from typing import Self

import torch
from pydantic import NonNegativeFloat, PositiveFloat, model_validator
from torch import Tensor

from builder.component import refuse
from builder.components.scaling import Scaling, ScalingConfig, unscaled
from builder.registry import register


@register("scaling", "yarn")
class YaRN(Scaling):
    """w_i ((1 - g_i) / factor + g_i), g_i from 1 (fast) down to 0 (slow) (Peng et al. 2023, "NTK-by-parts").

    The ramp lies between the pairs that turn `beta_fast` and `beta_slow` times in the original length. Cosines and
    sines are multiplied by 0.1 ln(factor) + 1, or by a quotient of two of these as in DeepSeek-V2.
    """

    class Config(ScalingConfig):
        """The knobs of YaRN.

        beta_fast, beta_slow     turns in the original length from which a pair is kept, and up to which interpolated
        attention_factor         None: from the factor
        mscale, mscale_all_dim   both given: (0.1 mscale ln(factor) + 1) / (0.1 mscale_all_dim ln(factor) + 1)
        truncate                 the ramp begins and ends at whole pairs
        """

        name: str = "yarn"
        beta_fast: PositiveFloat = 32.0
        beta_slow: PositiveFloat = 1.0
        attention_factor: PositiveFloat | None = None
        mscale: NonNegativeFloat | None = None
        mscale_all_dim: NonNegativeFloat | None = None
        truncate: bool = True

        @model_validator(mode="after")
        def _fast_turns_more(self) -> Self:
            if self.beta_fast <= self.beta_slow:
                rule = f"fast pairs turn more often than slow ones: above beta_slow={self.beta_slow:g}"
                refuse("beta_fast", self.beta_fast, rule, f"beta_fast={32 * self.beta_slow:g}")
            return self

    @property
    def factor(self) -> float:
        config = self.config
        if config.attention_factor is not None:
            return config.attention_factor
        if config.mscale and config.mscale_all_dim:
            return self._sharpened(config.mscale) / self._sharpened(config.mscale_all_dim)
        return self._sharpened(1.0)

    def _sharpened(self, mscale: float) -> float:
        return 0.1 * mscale * math.log(self.config.factor) + 1.0

    def frequencies(self, theta: float, width: int, reach: int | Tensor, device: torch.device) -> Tensor:
        low, high = (self._pair(turns, theta, width) for turns in (self.config.beta_fast, self.config.beta_slow))
        if self.config.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, width - 1)
        pair = torch.arange(width // 2, device=device, dtype=torch.float32)
        slow = ((pair - low) / (high - low or 0.001)).clamp(0, 1)  # (r/2,), 0 for fast pairs
        plain = unscaled(theta, width, device)
        return plain / self.config.factor * slow + plain * (1 - slow)

    def _pair(self, turns: float, theta: float, width: int) -> float:
        """The pair, as a real number, that turns so many times in the original length."""
        return width * math.log(self.original / (turns * 2 * math.pi)) / (2 * math.log(theta))
