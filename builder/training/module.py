"""One LightningModule around any LanguageModel: its steps, its optimizer, its loaders, and what it logs."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import lightning as L
import torch
from torch import Tensor

from builder.data.corpus import Corpus
from builder.data.loader import train_loader, val_loader
from builder.model.context import Aux
from builder.model.language_model import LanguageModel
from builder.spec import RunSpec

from .checkpoint import pack, unpack
from .objective import Task
from .tallies import Tallies


class Training(L.LightningModule):
    """Trains `model` as `spec` says; every loss is a mean over the targets that count, in nats."""

    def __init__(self, spec: RunSpec, model: LanguageModel, corpus: Corpus):
        super().__init__()
        self.spec, self.model, self.corpus = spec, model, corpus
        objective: Any = spec.objective.component
        self.objective = objective(spec.objective)
        self._window: list[Tensor] = []  # of each step since the last log line: (2,), summed loss and targets
        self.tallies = Tallies()
        self._kept: dict[str, Tensor] = {}  # the tallies of a checkpoint, until the device is known
        self._summed: list[tuple[Tensor, Tensor]] = []
        # The method, not the model: names stay as they are, and generation, whose lengths vary, is not compiled.
        self._forward: Any = torch.compile(model.forward) if spec.compile else model.forward

    def on_train_start(self) -> None:
        self._window = [sums.to(self.device) for sums in self._window]
        self.tallies.restore(self.model, self._kept, self.device)
        progress = self.trainer.fit_loop.epoch_loop.batch_progress
        progress.total.ready = progress.total.completed  # a checkpoint is written when the next batch is ready

    def on_train_batch_start(self, batch: dict[str, Tensor], index: int) -> None:
        self.trainer.fit_loop.epoch_loop._batches_that_stepped = self.global_step  # one too many after a resume
        seed = _draw(self.spec.seed, self.global_step, self.global_rank)
        torch.default_generator.manual_seed(seed)  # torch.manual_seed asks every kind of device there is
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def training_step(self, batch: dict[str, Tensor], index: int) -> Tensor:
        total, count, aux = self._losses(batch)
        self._window.append(torch.stack([total.detach(), count]))
        self.tallies.add(aux)
        added = sum(aux.losses.values())
        told = aux.stats | ({"train/aux_loss": added.detach()} if isinstance(added, Tensor) else {})
        if told and (self.global_step + 1) % self._log_every == 0:
            self.log_dict(told)
        return total / count.clamp_min(1) + added  # a batch without targets has loss 0, not 0/0

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        super().optimizer_step(*args, **kwargs)  # which runs the last pass of the step too
        self.tallies.settle(self._over_ranks)

    def on_train_batch_end(self, outputs: Any, batch: Any, index: int) -> None:
        if self.global_step == self.spec.steps:
            self.trainer.val_check_batch = index + 1  # the last step is validated, whatever the interval
        if self.global_step % self._log_every == 0:
            total, count = torch.stack(self._window).sum(0)
            self.log("train/loss", total / count.clamp_min(1))  # over the steps since the last line
            self._window = []

    def on_validation_epoch_start(self) -> None:
        self._summed = []

    def validation_step(self, batch: dict[str, Tensor], index: int) -> None:
        self._summed.append(self._losses(batch)[:2])

    def on_validation_epoch_end(self) -> None:
        total, count = (torch.stack(parts).double().sum() for parts in zip(*self._summed, strict=True))
        loss = (self._over_ranks(total) / self._over_ranks(count)).item()
        bits = loss / math.log(2) / self.corpus.val_bytes_per_token
        self.log_dict({"val/loss": loss, "val/perplexity": math.exp(min(loss, 700.0)), "val/bits_per_byte": bits})

    def configure_optimizers(self) -> Any:
        optimizer, schedule = self._components()
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule.factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        limit = math.inf if gradient_clip_val is None else gradient_clip_val
        by_value = gradient_clip_algorithm == "value"
        norm = torch.nn.utils.clip_grad_norm_(parameters, math.inf if by_value else limit)  # the norm before clipping
        if by_value:
            torch.nn.utils.clip_grad_value_(parameters, limit)
        if (self.global_step + 1) % self._log_every == 0:  # logging costs Lightning milliseconds
            self.log_dict({"optim/grad_norm": norm, "optim/lr": optimizer.param_groups[0]["lr"]})

    def train_dataloader(self) -> Any:
        """The batches from the step that training stands at, so that a resumed run reads what it would have read."""
        return train_loader(self.corpus, start_step=self.global_step, seed=self.spec.seed, **self._shape())

    def val_dataloader(self) -> Any:
        return val_loader(self.corpus, **self._shape())

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        pack(checkpoint, self.spec)
        checkpoint["tallies"] = self.tallies.state(self.model)
        checkpoint["window"] = torch.stack(self._window).cpu() if self._window else torch.empty(0, 2)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        unpack(checkpoint, self.spec)
        self._window = list(checkpoint["window"].unbind())
        self._kept = checkpoint.get("tallies", {})

    def _losses(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor, Aux]:
        """(summed loss, how many targets, what layers reported beside)."""
        task: Task = self.objective.task(batch)
        output = self._forward(task.inputs, attention_mask=task.attention_mask)
        return *self.objective.loss(output.logits, task), output.aux

    @property
    def _log_every(self) -> int:
        return self.trainer.log_every_n_steps  # pyright: ignore[reportAttributeAccessIssue]

    def _shape(self) -> dict[str, int]:
        place = {"rank": self.global_rank, "world": self.trainer.world_size}
        return {"batch": self.spec.batch.sequences, "length": self.spec.model.train_length} | place

    def _components(self) -> tuple[torch.optim.Optimizer, Any]:
        optimizer: Any = self.spec.optimizer.component
        schedule: Any = self.spec.schedule.component
        return optimizer.build(self.spec.optimizer, self.model), schedule(self.spec.schedule, self.spec.steps)

    def _over_ranks(self, value: Tensor) -> Tensor:
        return self.trainer.strategy.reduce(value, reduce_op="sum")  # type: ignore[return-value]


def _draw(seed: int, step: int, rank: int) -> int:
    """The seed of what is drawn in one step: dropout too needs no state to go on as if never interrupted."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{step}/{rank}".encode()).digest()[:7], "little")
