"""Predict a target sequence from a source: the objective of an encoder-decoder."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from builder.registry import register
from builder.training.objective import Objective, Smoothed, Task, shifted


@register("objective", "seq2seq")
class Seq2Seq(Objective):
    """loss = -sum_t log p(y_t | y_1 .. y_{t-1}, source) / number of real targets, the end included (chapter 3.8)."""

    reads = ("pairs",)
    kinds = ("encoder_decoder",)
    attention_mask = "the source in both directions; the target itself and what stands before it, and all of the source"
    loss_mask = "every real token of the target is counted, its end too; the source and padding never"

    class Config(Smoothed):
        """Label smoothing."""

        name: str = "seq2seq"

    def blank(self, rows: int, length: int, device: str) -> dict[str, Tensor]:
        source = torch.empty(rows, length, dtype=torch.long, device=device)
        return super().blank(rows, length, device) | {"source": source}

    def task(self, batch: dict[str, Tensor]) -> Task:
        return replace(shifted(batch), source=batch["source"], source_mask=batch.get("source_mask"))
