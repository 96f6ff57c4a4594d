"""A row to one vector, by which rows are compared."""

from __future__ import annotations

from typing import Annotated, Any, Self

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor
from torch.nn import functional as F

from builder.component import Config as BaseConfig
from builder.component import Room, Site, refuse
from builder.components.head import Head, HeadConfig
from builder.model.linear import Linear
from builder.registry import find, register


@register("head", "sentence")
class Sentence(Head):
    """e = p / |p|, p the pooled hidden states (Reimers & Gurevych 2019, "Sentence-BERT"); cosines are then products.

    With a `transform` f, p is norm(f(A pooled + a)): BERT's pooler, of the first token and with tanh.
    """

    gives = "sentence"

    class Config(HeadConfig):
        """How a row becomes one vector, and how wide; a layer may stand behind the pooling (`HeadConfig`).

        pooling     how the positions of a row become one vector
        width       a linear map to so many numbers behind it; None: none, d_model numbers
        normalise   whether the vector has length 1
        """

        name: str = "sentence"
        pooling: Annotated[BaseConfig, Room("pooling")] = Field(
            default_factory=lambda: find("pooling", "mean").Config()
        )
        width: PositiveInt | None = None
        normalise: bool = True

        @model_validator(mode="after")
        def _a_direction_has_room(self) -> Self:
            if self.width == 1 and self.normalise:
                rule = "a vector of one number and of length 1 is 1 or -1: there is nothing to learn"
                refuse("width", self.width, rule, "width=2, or normalise=false")
            return self

        def shrink(self, site: Site) -> Self:
            return super().shrink(site).model_copy(update={"pooling": self.pooling.shrink(site)})

    def __init__(self, config: Sentence.Config, site: Site, vocab_size: int):
        super().__init__()
        pooling: Any = config.pooling.component
        self.pooling = pooling(config.pooling, site)
        self.add_transform(config, site)
        self.map = None if config.width is None else Linear(site.d_model, config.width, role="readout")
        self.normalise = config.normalise

    def forward(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        pooled = self.transformed(self.pooling(hidden, real))  # (B, D)
        pooled = pooled if self.map is None else self.map(pooled)  # (B, E)
        if not self.normalise:
            return pooled
        return F.normalize(pooled.to(torch.promote_types(pooled.dtype, torch.float32)), dim=-1)

    def flops(self, tokens: int) -> int:
        maps = sum(2 * each.weight.numel() for each in (self.transform, self.map) if each is not None)
        return self.pooling.flops(tokens) + maps

    @classmethod
    def draw(cls, config: Any) -> str:
        pooled = config.drawn(f"{config.pooling.name}(h)")
        pooled = pooled if config.width is None else f"W {pooled}"
        return f"e = {pooled}" if not config.normalise else f"e = p / |p|, p = {pooled}"
