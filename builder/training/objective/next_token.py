"""Predict each token from those before it: the objective of a decoder-only language model."""

from __future__ import annotations

from torch import Tensor

from builder.registry import register
from builder.training.objective import Objective, Smoothed, Task, shifted


@register("objective", "next_token")
class NextToken(Objective):
    """loss = -sum_t log p(x_{t+1} | x_1 .. x_t) / number of real targets (chapter 3.3).

    Where the data says which tokens are an answer, as in instruction data, only those are targets.
    """

    attention_mask = "each position sees itself and what stands before it"
    loss_mask = "every real token but the first is a target, the end of a document too; padding and prompts never"

    class Config(Smoothed):
        """`across_documents`: whether the first token of a packed document is a target of the one before it."""

        name: str = "next_token"
        across_documents: bool = False

    config: Config

    def task(self, batch: dict[str, Tensor]) -> Task:
        return shifted(batch, self.config.across_documents)
