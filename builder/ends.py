"""Where a model begins, and which head it ends in where a config names none."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt, field_validator

from .component import Config, Room, refuse
from .section import Section

LANGUAGE_MODEL = "language_model"
"""The head of a model that says nothing of it."""

Probability = Annotated[float, Field(ge=0, lt=1)]


class EmbeddingSpec(Section):
    """How tokens become vectors.

    dropout     of the embedded tokens, in training
    scale       their factor: a number, sqrt_d_model (Vaswani et al. 2017), or None
    norm        of what enters the layers, positions included (Dettmers et al. 2022); None: none
    types       kinds of tokens, each with a vector that is added, as for the two sentences of a pair (Devlin et al.
                2019); None: all are of one kind
    """

    dropout: Probability = 0.0
    scale: PositiveFloat | Literal["sqrt_d_model"] | None = None
    norm: Annotated[Config, Room("norm")] | None = None
    types: PositiveInt | None = None

    @field_validator("scale", mode="before")
    @classmethod
    def _scale_is_a_number_or_the_word(cls, value: Any) -> Any:
        number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")
        if not (number or value in (None, "sqrt_d_model")):
            refuse("", value, "a number above 0, sqrt_d_model, or null", "scale=sqrt_d_model, or null")
        return value

    def factor(self, d_model: int) -> float | None:
        """The number behind `scale`."""
        return d_model**0.5 if isinstance(self.scale, str) else self.scale

    def draw(self, positions: bool) -> str:
        """What enters the layers, as the checklist draws it: E the table, t the token, K[k] the vector of its kind, P
        the positions, where they are added."""
        factor = "" if self.scale is None else "sqrt(d) " if isinstance(self.scale, str) else f"{self.scale:.4g} "
        drawn = f"{factor}E[t]" + " + K[k]" * (self.types is not None) + " + P" * positions
        return f"x = {drawn}" if self.norm is None else f"x = norm({drawn})"
