"""How rotary frequencies are changed to reach past the train length: the contract is `frequencies` and `factor`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from builder.component import Component, Site
from builder.component import Config as BaseConfig

Factor = Annotated[float, Field(ge=1)]
"""How many times the original length is reached for."""


class ScalingConfig(BaseConfig):
    """Knobs of every scaling: the original length is stretched by `factor`.

    original_length  the length that the frequencies were trained at; None: the model's train_length
    """

    factor: Factor
    original_length: PositiveInt | None = None

    def original(self, site: Site) -> int:
        """The length before stretching."""
        return self.original_length or site.train_length

    def stretched(self, site: Site) -> int:
        """The length that these frequencies are made for."""
        return int(self.factor * self.original(site))

    def shrink(self, site: Site) -> Self:
        return self.model_copy(update={"original_length": 4})  # shorter than what a probe reads, so that it is felt


class Scaling(Component):
    """Built as `Scaling(config, site)`; a scheme of rotary positions asks it for its frequencies once a pass.

    Some depend on the length of the sequence. That is `reach`, the tokens that it may hold (Positions.reach), known
    before its first token and the same for prefill and decode, so that no cached key was turned at another speed.
    """

    waits: ClassVar[bool] = False
    """Whether sequences within the original length are turned alike whatever the factor: then training there stays
    what it would be without one, and only what goes further is stretched."""

    def __init__(self, config: Any, site: Site):
        self.config = config
        self.original: int = config.original(site)

    @property
    def factor(self) -> float:
        """What cosines and sines are multiplied by; its square then multiplies the scores."""
        return 1.0

    def frequencies(self, theta: float, width: int, reach: int | Tensor, device: torch.device) -> Tensor:
        """Angle per position of each of the `width` / 2 pairs, float32 (width / 2,), or (B, 1, 1, width / 2) where rows
        differ in `reach`, which is then (B, 1, 1, 1)."""
        raise NotImplementedError

    @classmethod
    def misfit(cls, config: Any, width: int) -> str | None:
        """The rule that a rotary width breaks, or None."""
        return None


def unscaled(theta: float | Tensor, width: int, device: torch.device) -> Tensor:
    """theta^(-2i / width) for i < width / 2, float32 (width / 2,) whatever the default dtype (Su et al. 2021)."""
    exponent = torch.arange(0, width, 2, device=device, dtype=torch.float32) / width
    return 1.0 / theta**exponent
