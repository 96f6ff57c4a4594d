"""Vectors to logits: one number for each row of the vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

from builder.spec import HeadSpec

from .linear import Linear


class Head(Linear):
    """logits = h W^T + b (chapter 3.7), then times `scale`, then `cap tanh(logits / cap)` (Gemma 2).

    W (V, D) is the embedding's table where they are tied; what comes after acts on the logits alone.
    """

    def __init__(self, spec: HeadSpec, vocab_size: int, d_model: int):
        super().__init__(d_model, vocab_size, bias=spec.bias)
        self.scale, self.softcap = spec.scale, spec.softcap

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, D) -> (B, T, V)."""
        logits = super().forward(x)
        if self.scale is not None:
            logits = logits * self.scale
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        return logits
