"""Vectors to logits: one number for each row of the vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

from builder.spec import HeadSpec

from .linear import Linear
from .pieces import Loss, summed


class Head(Linear):
    """logits = h W^T + b (chapter 3.7), then times `scale`, then `cap tanh(logits / cap)` (Gemma 2).

    W (V, D) is the embedding's table where they are tied; what comes after acts on the logits alone.
    """

    def __init__(self, spec: HeadSpec, vocab_size: int, d_model: int):
        super().__init__(d_model, vocab_size, bias=spec.bias, role="readout")
        self.scale, self.softcap = spec.scale, spec.softcap

    def forward(self, x: Tensor, loss: Loss | None = None) -> Tensor:
        """x (B, T, D) -> (B, T, V); with a `loss`, its sum over all rows of (B T, V), which never exist together."""
        if loss is None:
            return self._finished(super().forward(x))
        return summed(x.flatten(0, 1), self.weight, self.bias, lambda z, rows: loss(self._finished(z), rows))

    def _finished(self, logits: Tensor) -> Tensor:
        if self.scale is not None:
            logits = logits * self.scale
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        return logits
