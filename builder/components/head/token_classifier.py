"""A position to one number for each class."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from torch import Tensor, nn

from builder.component import Site
from builder.components.head import Head, HeadConfig
from builder.model.linear import Linear
from builder.registry import register


@register("head", "token_classifier")
class TokenClassifier(Head):
    """logits = W h + b at each position, as for tagging; with a `transform` f, h is first norm(f(A h + a))."""

    gives = "token_classes"
    width_of = "n_classes"

    class Config(HeadConfig):
        """`n_classes` to tell apart; `dropout` of what the last map reads, in training."""

        name: str = "token_classifier"
        n_classes: Annotated[int, Field(ge=2)]
        bias: bool = True
        dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0

    def __init__(self, config: TokenClassifier.Config, site: Site, vocab_size: int):
        super().__init__()
        self.add_transform(config, site)
        self.dropout = nn.Dropout(config.dropout)
        self.classes = Linear(site.d_model, config.n_classes, bias=config.bias, role="readout")

    def forward(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        return self.classes(self.dropout(self.transformed(hidden)))  # (B, T, C)

    @classmethod
    def draw(cls, config: Any) -> str:
        return f"logits = W {config.drawn('h')}{' + b' * config.bias} at each position, {config.n_classes} classes"
