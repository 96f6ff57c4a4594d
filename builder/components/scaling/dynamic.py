"""Dynamic NTK scaling: the base grows with the length of the sequence, and only past the original length."""

from __future__ import annotations

import torch
from torch import Tensor

from builder.components.scaling import Scaling, ScalingConfig, unscaled
from builder.registry import register


@register("scaling", "dynamic")
class Dynamic(Scaling):
    """theta' = theta (factor n / L - (factor - 1))^(r / (r - 2)), n = max(reach, L).

    The slowest wave is stretched as by `linear`, the fastest not at all (bloc97 and emozilla 2023; Peng et al. 2023).
    L is the original length, r the width. n is fixed when the state is made: the same text in a longer state is turned
    at other speeds.
    """

    waits = True

    class Config(ScalingConfig):
        """`factor` is reached for at lengths past `original_length`."""

        name: str = "dynamic"

    def frequencies(self, theta: float, width: int, reach: int | Tensor, device: torch.device) -> Tensor:
        factor = self.config.factor
        if not isinstance(reach, Tensor):  # filled in there: a number that is sent to a GPU is waited for
            reach = torch.full((), reach, dtype=torch.float32, device=device)
        length = reach.float().clamp_min(self.original)
        growth = factor * length / self.original - (factor - 1)
        return unscaled(theta * growth ** (width / (width - 2)), width, device)

    @classmethod
    def misfit(cls, config: Dynamic.Config, width: int) -> str | None:
        if width <= 2:
            return f"dynamic scaling tells fast waves from slow ones: the rotary width, {width}, must be 4 or more"
        return None
