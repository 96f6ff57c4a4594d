"""Token ids to vectors: one row of a table for each id."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from builder.components.position import Position
from builder.ends import EmbeddingSpec

from .positions import Positions


class Types(nn.Embedding):
    """A vector for each kind of token."""

    roles = {"weight": "embedding"}

    def reset_parameters(self) -> None:
        """Nothing: the model's `init` draws the table."""


class Embedding(nn.Embedding):
    """x_i = E[t_i], then what the position scheme adds (chapter 3.7); E has `vocab_size` rows of width d_model.

    With kinds of tokens K[k_i] is added, the first kind where none is told (Devlin et al. 2019). With a scale s,
    s E[t_i]; with a norm, norm(s E[t_i] + K[k_i] + position), as in BLOOM and BERT. The product is taken in the dtype
    of the table but with s unrounded: Gemma in bfloat16 rounds sqrt(d) first, 55.5 for 55.4256.
    """

    roles = {"weight": "embedding"}

    def __init__(self, spec: EmbeddingSpec, vocab_size: int, d_model: int):
        super().__init__(vocab_size, d_model)
        self.scale = spec.factor(d_model)
        self.types = None if spec.types is None else Types(spec.types, d_model)
        self.norm = spec.norm.component(spec.norm, d_model) if spec.norm is not None else None
        self.dropout = nn.Dropout(spec.dropout)

    def forward(  # type: ignore[override]
        self, tokens: Tensor, positions: Positions, position: Position, types: Tensor | None = None
    ) -> Tensor:
        """tokens (B, T) int64, types (B, T) int64 or None -> (B, T, D)."""
        if types is not None and self.types is None:
            raise ValueError("types: the tokens of this model are of one kind; model.embedding.types is null")
        try:
            x = super().forward(tokens)  # (B, T, D)
        except IndexError:
            found = f"tokens: ids from {int(tokens.min())} to {int(tokens.max())}"
            raise ValueError(f"{found}, and the embedding has rows for 0 to {self.num_embeddings - 1}") from None
        x = x if self.scale is None else x * self.scale
        if self.types is not None:
            x = x + self.types(torch.zeros_like(tokens) if types is None else types)
        x = position.embed(x, positions)
        return self.dropout(x if self.norm is None else self.norm(x))

    def reset_parameters(self) -> None:
        """Nothing: the model's `init` draws the table."""
