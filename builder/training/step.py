"""One optimizer step over a batch in parts: its gradient is that of the whole batch, whatever the parts and ranks."""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_value_, clip_grads_with_norm_, get_total_norm

from builder.components.ffn import FFN
from builder.model.context import Aux
from builder.model.language_model import LanguageModel
from builder.model.whole_batch import WholeBatch
from builder.spec import RunSpec

from .divided import by_mesh, whole
from .losses import Losses
from .objective import Task
from .ranks import apart

if TYPE_CHECKING:
    from .module import Training


class Step:
    """What a step does with the model of `spec`.

        loss = sum over ranks and micro-batches of
               (their cross-entropies / targets of the whole batch + their share of its tokens * losses of layers)

    What is drawn in a pass comes from seed, step, rank and number of the micro-batch: nothing of it must be saved, and
    dropout alone makes one split differ from another. Experts with a capacity count their tokens in each pass.
    """

    def __init__(self, spec: RunSpec, model: LanguageModel):
        objective: Any = spec.objective.component
        self.spec, self.model = spec, model
        self.objective = objective(spec.objective)
        self.losses = Losses(model, self.objective, spec)
        self._ahead = [part for part in model.modules() if isinstance(part, FFN) and part.counts_ahead]

    def backward(self, training: Training, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Leaves the gradient of the whole batch; returns (summed cross-entropies, targets) of this rank's rows, and
        this rank's share in what is logged of the layers."""
        ranks, task = training.ranks, self.objective.task(batch)
        tasks = task.split(training.micro_batch)
        here = torch.stack([count.to(torch.float32) for count in task.counts])  # (3,)
        targets, tokens, sequences = ranks.sum(here).unbind()
        choices = self._count(training, tasks) if len(tasks) > 1 and self._ahead else {}
        told: dict[str, Tensor] = {}
        totals = []
        for number, part in enumerate(tasks):
            self._seed(training, number)
            with apart(training.trainer, self.model) if number < len(tasks) - 1 else nullcontext():
                weight = part.counts[1] / tokens.clamp_min(1)
                whole = WholeBatch(weight, (sequences * weight).clamp_min(1e-9), choices, ranks.sum)
                total, _, aux = self._forward(training, part, Aux(whole=whole))
                added = weight * sum(aux.losses.values()) if aux.losses else 0.0
                loss = total / targets.clamp_min(1) + added  # a batch without targets has loss 0, not 0/0
                training.manual_backward(loss * ranks.size)  # ranks are averaged
            totals.append(total.detach())
            training.tallies.add(aux)
            shares = {name: value / (len(tasks) * ranks.size) for name, value in aux.stats.items()}
            shares |= {"train/aux_loss": added.detach()} if isinstance(added, Tensor) else {}
            told = {name: told[name] + value if name in told else value for name, value in shares.items()}
        return torch.stack(totals).sum(), here[0], told

    def clip(self, optimizer: torch.optim.Optimizer) -> Tensor:
        """Clips the whole gradient as the trainer's gradient_clip_val says; returns its norm before, a scalar."""
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        limit = self.spec.trainer.get("gradient_clip_val")
        by_value = self.spec.trainer.get("gradient_clip_algorithm") == "value"
        alike = list(by_mesh(parameters).values())
        norms = [get_total_norm([p.grad for p in some if p.grad is not None]) for some in alike]
        norm = torch.linalg.vector_norm(torch.stack(whole(norms)))
        if limit:  # 0 is no limit, as in Lightning
            for some in alike:
                clip_grad_value_(some, limit) if by_value else clip_grads_with_norm_(some, limit, norm)
        return norm

    def _forward(self, training: Training, task: Task, aux: Aux) -> tuple[Tensor, Tensor, Aux]:
        with training.trainer.precision_plugin.forward_context():
            return self.losses.of(task, aux)

    @torch.no_grad()
    def _count(self, training: Training, tasks: list[Task]) -> dict[Any, Tensor]:
        """How often each expert will be chosen in the whole step, from a forward pass more: a layer's balancing loss
        multiplies what all tokens chose, and the first backward pass needs it."""
        counts: dict[Any, Tensor] = {}
        for number, part in enumerate(tasks):
            self._seed(training, number)
            aux = self._forward(training, part, Aux())[2]
            for module in self._ahead:
                tally = aux.tallies[module][:-2]  # (X,)
                counts[module] = counts[module] + tally if module in counts else tally
        return {module: training.ranks.sum(tally) for module, tally in counts.items()}

    def _seed(self, training: Training, number: int) -> None:
        seed = _draw(self.spec.seed, training.global_step, training.ranks.rank, number)
        torch.default_generator.manual_seed(seed)  # torch.manual_seed asks every kind of device there is
        if training.device.type == "cuda":
            torch.cuda.manual_seed(seed)


def _draw(*place: int) -> int:
    """The seed of what is drawn in one pass."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, place)).encode()).digest()[:7], "little")
