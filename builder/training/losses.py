"""The loss of a batch, as every training step computes it: in a run, on the bench, and in a forecast of memory."""

from __future__ import annotations

from torch import Tensor

from builder.model.context import Aux
from builder.model.language_model import LanguageModel, Output
from builder.spec import RunSpec

from .compiled import compiled
from .objective import Objective, Task
from .recompute import recompute
from .stand_in import standing_in


class Losses:
    """What `model` owes for a batch under the `compile`, `activation_checkpointing` and `fused_loss` of a run.

    Only passes that are made here are compiled or recomputed; the model itself stays as it is.
    """

    def __init__(self, model: LanguageModel, objective: Objective, spec: RunSpec):
        self.model, self.objective, self.fused = model, objective, spec.fused_loss
        self._forwards = {**recompute(model, spec.recomputed), **compiled(model, spec.compile)}

    def __call__(self, batch: dict[str, Tensor], aux: Aux | None = None) -> tuple[Tensor, Tensor, Aux]:
        """What `of` says of one of the loader's batches."""
        return self.of(self.objective.task(batch), aux)

    def of(self, task: Task, aux: Aux | None = None) -> tuple[Tensor, Tensor, Aux]:
        """(sum of the losses in nats, how many targets count, what layers reported beside), no one having waited.

        `aux` is told to the layers and reported to; None: a new one.
        """
        output = self._run(task, aux, logits=not self.fused)
        smooth = self.model.training
        if self.fused:
            total, counted = self.objective.fused(output.hidden, self.model.head, task, smooth)
        else:
            total, counted = self.objective.loss(output.logits, task, smooth)
        return total, counted, output.aux

    def judged(self, task: Task) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """(sum of the losses in nats, how many targets count, the sums that figures are made of) in a validation."""
        if self.fused:  # whose logits never exist together
            total, counted, _ = self.of(task)
            return total, counted, {}
        output = self._run(task, None, logits=True)
        total, counted = self.objective.loss(output.logits, task)
        return total, counted, self.objective.measure(output.logits, task)

    def _run(self, task: Task, aux: Aux | None, logits: bool) -> Output:
        tokens, beside = task.read
        with standing_in(self._forwards):
            return self.model(tokens, **beside, logits=logits, aux=aux or Aux())
