"""Token ids to vectors: one row of a table for each id."""

from __future__ import annotations

from torch import Tensor, nn

from builder.components.position import Position
from builder.spec import EmbeddingSpec

from .positions import Positions


class Embedding(nn.Embedding):
    """x_i = E[t_i], then what the position scheme adds (chapter 3.7); E has `vocab_size` rows of width d_model.

    With a scale s, s E[t_i]; with a norm, norm(s E[t_i] + position), as in BLOOM and BERT. The product is taken in the
    dtype of the table but with s unrounded: Gemma in bfloat16 rounds sqrt(d) first, 55.5 for 55.4256.
    """

    roles = {"weight": "embedding"}

    def __init__(self, spec: EmbeddingSpec, vocab_size: int, d_model: int):
        super().__init__(vocab_size, d_model)
        self.scale = spec.factor(d_model)
        self.norm = spec.norm.component(spec.norm, d_model) if spec.norm is not None else None
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, tokens: Tensor, positions: Positions, position: Position) -> Tensor:  # type: ignore[override]
        """tokens (B, T) int64 -> (B, T, D)."""
        x = super().forward(tokens)  # (B, T, D)
        x = position.embed(x if self.scale is None else x * self.scale, positions)
        return self.dropout(x if self.norm is None else self.norm(x))

    def reset_parameters(self) -> None:
        """Nothing: the model's `init` draws the table."""
