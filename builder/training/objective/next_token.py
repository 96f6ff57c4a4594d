"""Predict each token from those before it: the objective of a decoder-only language model."""

from __future__ import annotations

from torch import Tensor

from builder.component import Config as BaseConfig
from builder.registry import register
from builder.training.objective import Objective, Task


@register("objective", "next_token")
class NextToken(Objective):
    """loss = -sum_t log p(x_{t+1} | x_1 .. x_t) / number of real targets (chapter 3.3)."""

    attention_mask = "each position sees itself and what stands before it"
    loss_mask = "every real token but the first is a target, the end of a document too; padding never"

    class Config(BaseConfig):
        """No knobs."""

        name: str = "next_token"

    def task(self, batch: dict[str, Tensor]) -> Task:
        tokens, real = batch["tokens"], batch.get("attention_mask")
        if real is None:
            return Task(tokens[:, :-1], tokens[:, 1:])
        return Task(tokens[:, :-1], tokens[:, 1:], loss_mask=real[:, 1:], attention_mask=real[:, :-1])
