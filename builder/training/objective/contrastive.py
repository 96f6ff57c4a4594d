"""Bring two texts that belong together closer than any others of the batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import PositiveFloat
from torch import Tensor

from builder.component import Config as BaseConfig
from builder.registry import register
from builder.training.objective import Objective, Task


@register("objective", "contrastive")
class Contrastive(Objective):
    """loss = mean over pairs of -log softmax_j(a_i . b_j / temperature)_i, and the same from b to a (Oord et al. 2018;
    Radford et al. 2021): the other rows of the batch are what a pair is told apart from.
    """

    ahead = 0
    reads = ("contrastive",)
    kinds = ("encoder", "decoder")
    gives = ("sentence",)
    together = True
    language = False
    attention_mask = "every real token that the model's kind lets a position see, of its own text"
    loss_mask = "every pair is counted, once"

    class Config(BaseConfig):
        """`temperature` divides the products of the vectors."""

        name: str = "contrastive"
        temperature: PositiveFloat = 0.05

    config: Config

    def blank(self, rows: int, length: int, device: str) -> dict[str, Tensor]:
        batch = super().blank(rows, length, device)
        return batch | {"other": torch.empty_like(batch["tokens"])}

    def task(self, batch: dict[str, Tensor]) -> Task:
        texts, masks = (batch["tokens"], batch["other"]), (batch.get("attention_mask"), batch.get("other_mask"))
        width = max(text.shape[1] for text in texts)
        inputs = torch.stack([F.pad(text, (0, width - text.shape[1])) for text in texts], dim=1)  # (B, 2, T)
        there = [torch.ones_like(t, dtype=torch.bool) if m is None else m for t, m in zip(texts, masks, strict=True)]
        real = torch.stack([F.pad(mask, (0, width - mask.shape[1])) for mask in there], dim=1)  # (B, 2, T)
        return Task(inputs, torch.arange(len(inputs), device=inputs.device), attention_mask=real)

    def loss(self, logits: Tensor, task: Task, smooth: bool = False) -> tuple[Tensor, Tensor]:
        scores = self._scores(logits)  # (B, B)
        here, there = (F.cross_entropy(s, task.targets, reduction="sum") for s in (scores, scores.T))
        return (here + there) / 2, task.targets.new_full((), len(task.targets), dtype=torch.float32)

    def measure(self, logits: Tensor, task: Task) -> dict[str, Tensor]:
        """How many first texts find their own second one among all."""
        return {"right": (self._scores(logits).argmax(-1) == task.targets).sum()}

    def _scores(self, vectors: Tensor) -> Tensor:
        a, b = vectors.unflatten(0, (-1, 2)).float().unbind(1)  # (B, E) each
        return a @ b.T / self.config.temperature  # (B, B)
