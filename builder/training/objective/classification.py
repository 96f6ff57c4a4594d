"""Tell which class a row is of, or each of its tokens."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from builder.registry import register
from builder.training.objective import Objective, Smoothed, Task, both


@register("objective", "classification")
class Classification(Objective):
    """loss = -sum_i log p(class_i | x_i) / number of labels: one for each row, or one for each token (chapter 3.8).

    Of tokens, those without a label have a negative number; rows of data `labelled` have one label each, those of data
    `tagged` one for each word, on its first token.
    """

    ahead = 0
    reads = ("labelled", "tagged")
    kinds = ("encoder", "decoder")
    gives = ("classes", "token_classes")
    figures = ("accuracy", "f1")
    language = False
    attention_mask = "every real token that the model's kind lets a position see"
    loss_mask = "every label is counted, once; padding has none"

    @classmethod
    def asked(cls, kind: str) -> tuple[str, ...]:
        return ("token_classes",) if kind == "tagged" else ("classes",)

    class Config(Smoothed):
        """Label smoothing."""

        name: str = "classification"

    def blank(self, rows: int, length: int, device: str) -> dict[str, Tensor]:
        return super().blank(rows, length, device) | {"labels": torch.empty(rows, dtype=torch.long, device=device)}

    def task(self, batch: dict[str, Tensor]) -> Task:
        labels, real = batch["labels"], batch.get("attention_mask")
        there = both(None if labels.ndim == 1 else labels >= 0, batch.get("counted"))
        targets = labels if there is None else labels.clamp_min(0)
        return Task(batch["tokens"], targets, loss_mask=there, attention_mask=real)

    def measure(self, logits: Tensor, task: Task) -> dict[str, Tensor]:
        """How often each class was taken for each: (C, C), the true one first."""
        classes = logits.shape[-1]
        guess, truth = logits.flatten(0, -2).argmax(-1), task.targets.flatten()  # (N,)
        pairs = truth * classes + guess
        pairs = pairs if task.loss_mask is None else pairs[task.loss_mask.flatten()]
        return {"confusion": torch.bincount(pairs, minlength=classes**2).view(classes, classes)}

    def metrics(self, sums: Mapping[str, Tensor], targets: float) -> dict[str, float]:
        """Accuracy, and the mean over classes of F1 = 2 P R / (P + R); a class that is neither there nor guessed is
        left out."""
        if "confusion" not in sums or not targets:
            return {}
        table = sums["confusion"].double()
        right, size = table.diagonal(), table.sum(0) + table.sum(1)  # (C,)
        f1 = (2 * right / size)[size > 0]
        return {"accuracy": (right.sum() / table.sum()).item(), "f1": f1.mean().item()}
