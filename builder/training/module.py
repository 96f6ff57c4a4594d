"""One LightningModule around any LanguageModel: its optimizer, its loaders, its validation, and what it logs."""

from __future__ import annotations

import math
from contextlib import ExitStack
from functools import cached_property
from typing import Any

import lightning as L
import torch
from torch import Tensor

from builder.data.corpus import Corpus
from builder.data.loader import train_loader, val_loader
from builder.errors import ArchlabError
from builder.experiments.tracking.forgiving import warn
from builder.model.language_model import LanguageModel
from builder.spec import RunSpec

from .averaging import Averages, averages
from .checkpoint import pack, unpack
from .divided import by_mesh
from .figures import Found, loss_of
from .guard import Guard
from .ranks import Ranks
from .sharding import shard
from .step import Step
from .tallies import Tallies


class Diverged(ArchlabError):
    """A loss that is no number any more."""


class Training(L.LightningModule):
    """Trains `model` as `spec` says; a batch of Lightning's is one optimizer step, in micro-batches.

    Every loss is a mean over the targets that count, in nats, whatever the micro-batches and the ranks.
    """

    def __init__(self, spec: RunSpec, model: LanguageModel, corpus: Corpus):
        super().__init__()
        self.automatic_optimization = False
        self.spec, self.model, self.corpus = spec, model, corpus
        asked = spec.batch.micro_batch
        self.micro_batch = asked if isinstance(asked, int) else spec.rows  # of each rank; `auto` is a number by now
        self.step = Step(spec, model)
        self.tallies = Tallies()
        self._window: list[Tensor] = []  # of each step since the last log line: (2,), summed loss and targets
        self.averages = Averages()  # until there is an optimizer
        self.guard = None if spec.guard is None else Guard(spec.guard)
        self._refused = False  # the step under way
        self._deployed = ExitStack()  # while a validation runs
        self._kept: dict[str, Tensor] = {}  # the tallies of a checkpoint, until the device is known,
        self._averaged: dict[str, Tensor] = {}  # and its average
        self.owners: list[int] = []  # which source each batch of a validation is of
        self._unread: tuple[str, ...] = ()  # the sources of which nothing was read in the last one
        self._divided = False

    @cached_property
    def ranks(self) -> Ranks:
        """Those that share a batch; known once the strategy is set up."""
        return Ranks.of(self.trainer)

    def configure_model(self) -> None:
        if self.device_mesh is not None and not self._divided:
            shard(self.model, self.device_mesh, experts=getattr(self.trainer.strategy, "expert_parallel", False))
            self._divided = True

    def on_train_start(self) -> None:
        first = self.ranks.rank == 0  # a checkpoint has what all ranks had seen
        self._window = [sums.to(self.device) * first for sums in self._window]
        self.tallies.restore(self.model, self._kept, self.device)
        self.averages.restore(self.model, self._averaged)
        self._averaged = {}
        progress = self.trainer.fit_loop.epoch_loop.batch_progress
        progress.total.ready = progress.total.completed  # a checkpoint is written when the next batch is ready

    def on_train_batch_start(self, batch: dict[str, Tensor], index: int) -> None:
        self.trainer.fit_loop.epoch_loop._batches_that_stepped = self.global_step  # one too many after a resume

    def training_step(self, batch: dict[str, Tensor], index: int) -> None:
        optimizer: Any = self.optimizers()
        scheduler: Any = self.lr_schedulers()
        logs = self.logs  # asked before the step is counted
        with torch.autocast(self.device.type, enabled=False):  # which is for forward passes alone
            optimizer.zero_grad()
            total, targets, told = self.step.backward(self, batch)
            self._window.append(torch.stack([total, targets]))
            optimizer.step()  # calls on_before_optimizer_step
            scheduler.step()
            self.averages.update(self.model)
            self.tallies.drop() if self._refused else self.tallies.settle(self.ranks.sum)
        if told and logs:
            names, values = list(told), torch.stack(list(told.values()))
            self.log_dict(dict(zip(names, self.ranks.sum(values).unbind(), strict=True)))

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        norm = self.step.clip(optimizer)
        told = {"optim/grad_norm": norm, "optim/lr": optimizer.param_groups[0]["lr"]}
        if self.guard is not None:
            self._refused = self._refuses(self.guard, norm, optimizer)
            told["optim/skipped"] = float(self.guard.skipped)
        if self.logs:  # logging costs Lightning milliseconds
            self.log_dict(told)

    def _refuses(self, guard: Guard, norm: Tensor, optimizer: Any) -> bool:
        """Whether the guard refuses the step under way, whose gradient and loss are then let go."""
        total, targets = self.ranks.sum(self._window[-1])
        reason = guard.judge(norm, total / targets.clamp_min(1), self.global_step + 1)
        if reason is not None:
            guard.refuse(reason)
            optimizer.zero_grad()
            self._window.pop()
        return reason is not None

    def on_train_batch_end(self, outputs: Any, batch: Any, index: int) -> None:
        if self.global_step == self.spec.steps:
            self.trainer.val_check_batch = index + 1  # the last step is validated, whatever the interval
        if self.global_step % self._log_every == 0:
            window = self._window or [torch.full((2,), math.nan, device=self.device)]  # where all steps were refused
            total, targets = self.ranks.sum(torch.stack(window).sum(0))
            self.log("train/loss", total / targets.clamp_min(1))  # over the steps since the last line
            self.refuse_divergence()
            self._window = []

    def refuse_divergence(self) -> None:
        """Raises Diverged, on every rank, when a loss since the last log line is no finite number."""
        if self._window and not self.ranks.sum(torch.stack(self._window).sum(0)).isfinite().all():
            raise Diverged(
                f"train/loss: found no finite number by step {self.global_step}; what was saved before is kept. "
                "A lower optimizer.lr, a longer schedule.warmup_steps or guard={action: skip} may help; "
                "debug=anomaly names the operation"
            )

    def on_validation_epoch_start(self) -> None:
        self._found = Found(self.step.objective, self.corpus)
        self._deployed.enter_context(self.averages.deployed(self.model))

    def validation_step(self, batch: dict[str, Tensor], index: int) -> None:
        for part in self.step.objective.task(batch).split(self.micro_batch):
            self._found.add(self.owners[index], self.step.losses.judged(part))

    def on_validation_epoch_end(self) -> None:
        self._deployed.close()
        self.log_dict(self._found.figures(self.ranks.sum))
        unread = self._found.unread
        if unread and unread != self._unread and self.ranks.rank == 0:
            limit = f"trainer.limit_val_batches={self.trainer.limit_val_batches}"
            warn(f"{', '.join(map(loss_of, unread))}: left out, since a validation under {limit} reads no target of it")
        self._unread = unread

    def configure_optimizers(self) -> Any:
        optimizer, schedule = self._components()
        component: Any = self.spec.optimizer.component
        self.averages = averages(self.spec.ema, component.deployed(optimizer))
        if len(by_mesh(self.model.parameters())) > 1:  # one kernel takes no tensors that are divided over other ranks
            for group in optimizer.param_groups:
                group |= dict.fromkeys(group.keys() & {"fused", "foreach"}, False)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule.factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def collate(self, batch: dict[str, Tensor], draws: list[int]) -> dict[str, Tensor]:
        """A batch of the data as the objective trains on it."""
        return self.step.objective.collate(batch, draws, self.corpus.tokenizer)

    def train_dataloader(self) -> Any:
        """The batches from the step that training stands at, so that a resumed run reads what it would have read."""
        return train_loader(self.corpus.train, start_step=self.global_step, seed=self.spec.seed, **self._shape())

    def val_dataloader(self) -> Any:
        loader = val_loader(self.corpus.val, **self._shape())
        self.owners = loader.dataset.owners  # pyright: ignore[reportAttributeAccessIssue]
        return loader

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        pack(checkpoint, self.spec)
        checkpoint["tallies"] = self.tallies.state(self.model)
        checkpoint["averaged"] = self.averages.state(self.model)
        checkpoint["guard"] = None if self.guard is None else self.guard.state_dict()
        window = torch.stack(self._window) if self._window else torch.empty(0, 2, device=self.device)
        checkpoint["window"] = self.ranks.sum(window).cpu()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        unpack(checkpoint, self.spec)
        self._kept = checkpoint["tallies"]
        self._window = list(checkpoint["window"])
        self._averaged = checkpoint["averaged"]
        if self.guard is not None:
            self.guard.load_state_dict(checkpoint["guard"])

    @property
    def logs(self) -> bool:
        """Whether the step under way ends with a log line."""
        return (self.global_step + 1) % self._log_every == 0

    @property
    def _log_every(self) -> int:
        return self.trainer.log_every_n_steps  # pyright: ignore[reportAttributeAccessIssue]

    def _shape(self) -> dict[str, Any]:
        place = {"rank": self.ranks.rank, "world": self.ranks.size}
        return {"batch": self.spec.rows, "collate": self.collate} | place

    def _components(self) -> tuple[torch.optim.Optimizer, Any]:
        optimizer: Any = self.spec.optimizer.component
        schedule: Any = self.spec.schedule.component
        return optimizer.build(self.spec.optimizer, self.model), schedule(self.spec.schedule, self.spec.steps)
