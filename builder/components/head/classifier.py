"""A row to one number for each class: its positions pooled, then a linear map."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field
from torch import Tensor, nn

from builder.component import Config as BaseConfig
from builder.component import Room, Site
from builder.components.head import Head, HeadConfig
from builder.model.linear import Linear
from builder.registry import find, register


@register("head", "classifier")
class Classifier(Head):
    """logits = W p + b, p the pooled hidden states; with a `transform` f, of norm(f(A p + a)) (Devlin et al. 2019)."""

    gives = "classes"
    width_of = "n_classes"

    class Config(HeadConfig):
        """How many classes, and how a row becomes one vector, which a layer may stand behind (`HeadConfig`).

        n_classes   how many there are to tell apart
        pooling     how the positions of a row become one vector; with transform=tanh behind it, BERT's pooler
        dropout     of what the last map reads, in training
        """

        name: str = "classifier"
        n_classes: Annotated[int, Field(ge=2)]
        pooling: Annotated[BaseConfig, Room("pooling")] = Field(
            default_factory=lambda: find("pooling", "mean").Config()
        )
        bias: bool = True
        dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0

        def shrink(self, site: Site) -> Self:
            return super().shrink(site).model_copy(update={"pooling": self.pooling.shrink(site)})

    def __init__(self, config: Classifier.Config, site: Site, vocab_size: int):
        super().__init__()
        pooling: Any = config.pooling.component
        self.pooling = pooling(config.pooling, site)
        self.add_transform(config, site)
        self.dropout = nn.Dropout(config.dropout)
        self.classes = Linear(site.d_model, config.n_classes, bias=config.bias, role="readout")

    def forward(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        pooled = self.transformed(self.pooling(hidden, real))  # (B, D)
        return self.classes(self.dropout(pooled))  # (B, C)

    def flops(self, tokens: int) -> int:
        maps = sum(2 * each.weight.numel() for each in (self.transform, self.classes) if each is not None)
        return self.pooling.flops(tokens) + maps

    @classmethod
    def draw(cls, config: Any) -> str:
        pooled = config.drawn(f"{config.pooling.name}(h)")
        return f"logits = W {pooled}{' + b' * config.bias}, {config.n_classes} classes"
