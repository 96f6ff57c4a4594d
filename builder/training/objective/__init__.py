"""What is learnt: an objective turns a batch into inputs, targets and a loss mask, and says which is which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from builder.component import Component


@dataclass(frozen=True)
class Task:
    """One batch made ready: what the model reads and what it is asked.

    inputs          (B, T) int64
    targets         (B, T) int64
    loss_mask       (B, T) bool, true where the target counts; None: everywhere
    attention_mask  (B, T) bool, true where a real token stands; None: everywhere
    """

    inputs: Tensor
    targets: Tensor
    loss_mask: Tensor | None = None
    attention_mask: Tensor | None = None


class Objective(Component):
    """Built as `Objective(config)`."""

    attention_mask: str
    """In a few words, what a position may see: for the checklist."""
    loss_mask: str
    """In a few words, what is counted: for the checklist."""

    def __init__(self, config: Any):
        self.config = config

    def task(self, batch: dict[str, Tensor]) -> Task:
        """A batch from the loader, `tokens` (B, T + 1) and perhaps `attention_mask` (B, T + 1), as a Task."""
        raise NotImplementedError

    def loss(self, logits: Tensor, task: Task) -> tuple[Tensor, Tensor]:
        """(sum of the cross-entropies in nats, how many targets count) from logits (B, T, V), in float32."""
        losses = F.cross_entropy(logits.flatten(0, 1).float(), task.targets.flatten(), reduction="none")  # (BT,)
        if task.loss_mask is None:
            return losses.sum(), losses.new_full((), losses.numel())  # filled there: no copy to wait for
        counted = task.loss_mask.flatten().to(losses.dtype)  # (BT,)
        return (losses * counted).sum(), counted.sum()
