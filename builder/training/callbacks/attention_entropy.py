"""How widely each head looks, in the metrics."""

from __future__ import annotations

import lightning as L
import torch

from builder.experiments.attention_capture import capture_attention
from builder.experiments.attention_maps import place_of
from builder.training.module import Training


class AttentionEntropy(L.Callback):
    """Logs attention/<place>/head-<number>/entropy at each validation: -sum_s w log w in nats, the mean over the rows
    of the first validation batch that see anything.

    0 is a head that looks at one token, log S one that looks at S tokens alike. One pass with the reference kernel, on
    the first rank; a model that is divided over ranks isn't looked into.
    """

    logs = ()  # nothing that a callback can watch

    @torch.no_grad()
    def on_validation_end(self, trainer: L.Trainer, module: Training) -> None:
        if not trainer.is_global_zero or module.device_mesh is not None or trainer.sanity_checking:
            return
        batch = next(iter(module.val_dataloader()))
        task = module.step.objective.task({name: value.to(module.device) for name, value in batch.items()})
        tokens, beside = task.split(module.micro_batch)[0].read
        with module.averages.deployed(module.model), capture_attention(module.model) as seen:
            module.model(tokens, **beside, logits=False)
        told = {
            f"attention/{place_of(name)}/head-{head}/entropy": float(value)
            for name, entropies in seen.entropies().items()
            for head, value in enumerate(entropies)
        }
        for logger in trainer.loggers:
            logger.log_metrics(told, step=trainer.global_step - 1)  # as Lightning counts, from 0
