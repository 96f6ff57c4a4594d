"""The validation loss at the length that a model is deployed at, beside that at the length it is trained at."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import lightning as L
import torch
from torch import Tensor

from builder.data.loader import val_loader
from builder.training.module import Training

METRIC = "val/loss_at_deploy_length"


class DeployLength(L.Callback):
    """Logs val/loss_at_deploy_length at each validation: the same text in windows of model.deploy_length tokens, each
    token a target once, in nats per target.

    What a model that was trained on short windows makes of long ones (Press et al. 2022). A batch holds about as many
    tokens as one of the validation, so that it takes about as long again and as much memory, but for what grows with
    the square of the length.
    """

    logs = (METRIC,)

    def on_validation_epoch_end(self, trainer: L.Trainer, module: Training) -> None:
        # Lightning asks callbacks before the module, which still holds the weights that are deployed.
        total, targets = module.ranks.sum(torch.stack(list(_sums(trainer, module))).double().sum(0))
        module.log_dict({METRIC: (total / targets).item() if targets else math.nan})


def _sums(trainer: L.Trainer, module: Training) -> Any:
    """(2,) of each pass: the summed loss and how many targets count."""
    spec, ranks = module.spec, module.ranks
    length = spec.model.deploy_length

    def as_long(rows: int, multiple: int) -> int:
        """So many rows that they hold the tokens of `rows` rows in training, a multiple of ranks and at least one."""
        return max(1, rows * spec.model.train_length // length // multiple) * multiple

    loader = val_loader(
        module.corpus.val.at(length),
        batch=as_long(spec.rows, ranks.size),
        collate=module.collate,
        rank=ranks.rank,
        world=ranks.size,
    )
    for batch in islice(loader, _limit(trainer)):
        moved: dict[str, Tensor] = trainer.strategy.batch_to_device(batch, module.device)
        for part in module.step.objective.task(moved).split(as_long(module.micro_batch, 1)):
            with trainer.precision_plugin.val_step_context():
                total, counted, _ = module.step.losses.of(part)
            yield torch.stack([total, counted])


def _limit(trainer: L.Trainer) -> int | None:
    """How many batches trainer.limit_val_batches lets a validation read; None: all that there are."""
    asked = trainer.limit_val_batches
    if isinstance(asked, int):
        return asked
    return None if asked == 1 else int(trainer.num_val_batches[0])
