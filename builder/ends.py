"""The two ends of a model: how tokens become vectors, and vectors logits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, field_validator

from .component import Config, Room, refuse
from .section import Section

Probability = Annotated[float, Field(ge=0, lt=1)]


class EmbeddingSpec(Section):
    """How tokens become vectors.

    dropout     of the embedded tokens, in training
    scale       their factor: a number, sqrt_d_model (Vaswani et al. 2017), or None
    norm        of what enters the layers, positions included (Dettmers et al. 2022); None: none
    """

    dropout: Probability = 0.0
    scale: PositiveFloat | Literal["sqrt_d_model"] | None = None
    norm: Annotated[Config, Room("norm")] | None = None

    @field_validator("scale", mode="before")
    @classmethod
    def _scale_is_a_number_or_the_word(cls, value: Any) -> Any:
        number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")
        if not (number or value in (None, "sqrt_d_model")):
            refuse("", value, "a number above 0, sqrt_d_model, or null", "sqrt_d_model")
        return value

    def factor(self, d_model: int) -> float | None:
        """The number behind `scale`."""
        return d_model**0.5 if isinstance(self.scale, str) else self.scale

    def draw(self, positions: bool) -> str:
        """What enters the layers, as the checklist draws it: E the table, t the token, P the positions, if added."""
        factor = "" if self.scale is None else "sqrt(d) " if isinstance(self.scale, str) else f"{self.scale:.4g} "
        drawn = f"{factor}E[t] + P" if positions else f"{factor}E[t]"
        return f"x = {drawn}" if self.norm is None else f"x = norm({drawn})"


class HeadSpec(Section):
    """How vectors become logits.

    bias        one number per vocabulary row (chapter 3.7)
    scale       the factor of the logits, bias included; None: 1
    softcap     cap tanh(logits / cap), after the scale: no logit passes the cap (Gemma 2); None: no cap
    """

    bias: bool = False
    scale: PositiveFloat | None = None
    softcap: PositiveFloat | None = None

    def draw(self) -> str:
        """The logits as the checklist draws them: h what leaves the layers, W the weight."""
        logits = "(W h + b)" if self.bias and (self.scale or self.softcap) else "W h + b" if self.bias else "W h"
        logits = logits if self.scale is None else f"{self.scale:.4g} {logits}"
        if self.softcap is not None:
            logits = f"{self.softcap:g} tanh({logits} / {self.softcap:g})"
        return f"logits = {logits}"
