"""What is learnt: an objective turns a batch into inputs, targets and a loss mask, and says which is which."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from builder.component import Component
from builder.model.head import Head


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

    def split(self, rows: int) -> list[Task]:
        """The same in parts of `rows` rows, the last of which may have fewer."""
        parts = {
            name: value.split(rows) if isinstance(value, Tensor) else None
            for name, value in ((field.name, getattr(self, field.name)) for field in fields(self))
        }
        inputs = parts["inputs"] or ()
        several = ({name: row[number] if row else None for name, row in parts.items()} for number in range(len(inputs)))
        return [Task(**values) for values in several]  # type: ignore[arg-type]

    @property
    def counts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Scalars: targets that count, real tokens that are read, and rows that hold any."""
        rows, length = self.inputs.shape
        full = self.inputs.new_full  # filled there: no copy to wait for
        targets = full((), rows * length) if self.loss_mask is None else self.loss_mask.sum()
        if self.attention_mask is None:
            return targets, full((), rows * length), full((), rows)
        return targets, self.attention_mask.sum(), self.attention_mask.any(1).sum()


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

    def nats(self, logits: Tensor, targets: Tensor, counted: Tensor | None) -> Tensor:
        """The sum of the cross-entropies of rows: logits (N, V), targets (N,), counted (N,) bool or None for all."""
        losses = F.cross_entropy(logits.float(), targets, reduction="none")  # (N,)
        return losses.sum() if counted is None else (losses * counted.to(losses.dtype)).sum()

    def loss(self, logits: Tensor, task: Task) -> tuple[Tensor, Tensor]:
        """(sum of the cross-entropies in nats, how many targets count) from logits (B, T, V), in float32."""
        return self.nats(logits.flatten(0, 1), *_rows(task)), _count(task)

    def fused(self, hidden: Tensor, head: Head, task: Task) -> tuple[Tensor, Tensor]:
        """The same from the hidden states (B, T, D), and the logits of a piece of them at a time."""
        targets, counted = _rows(task)

        def piece(logits: Tensor, rows: slice) -> Tensor:
            return self.nats(logits, targets[rows], None if counted is None else counted[rows])

        return head(hidden, piece), _count(task)


def _rows(task: Task) -> tuple[Tensor, Tensor | None]:
    return task.targets.flatten(), None if task.loss_mask is None else task.loss_mask.flatten()  # (BT,)


def _count(task: Task) -> Tensor:
    if task.loss_mask is not None:
        return task.loss_mask.sum(dtype=torch.float32)
    every = task.targets.numel()
    return task.targets.new_full((), every, dtype=torch.float32)  # filled there: no copy to wait for
