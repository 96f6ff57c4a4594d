"""Token ids to vectors: one row of a table for each id."""

from __future__ import annotations

from torch import Tensor, nn

from builder.components.position import Position
from builder.spec import EmbeddingSpec

from .positions import Positions


class Embedding(nn.Embedding):
    """x_i = E[t_i], then what the position scheme adds (chapter 3.7); E has `vocab_size` rows of width d_model."""

    roles = {"weight": "embedding"}

    def __init__(self, spec: EmbeddingSpec, vocab_size: int, d_model: int):
        super().__init__(vocab_size, d_model)
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, tokens: Tensor, positions: Positions, position: Position) -> Tensor:  # type: ignore[override]
        """tokens (B, T) int64 -> (B, T, D)."""
        return self.dropout(position.embed(super().forward(tokens), positions))

    def reset_parameters(self) -> None:
        """Nothing: the model's `init` draws the table."""
