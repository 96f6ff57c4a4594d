"""Checkpoints of the best and of the last steps, in the run folder."""

from __future__ import annotations

import math
import time
from typing import Any, Literal

import lightning as L

from builder.errors import ConfigError, Problem
from builder.experiments.folder import RunFolder
from builder.experiments.kept import keep, named

from .agreement import Highest


class Last(L.Callback):
    """Writes step-<number>.ckpt every so many optimizer steps, or minutes, or either, and at the end.

    The newest `keep` are kept, and last.ckpt leads to the newest of all. To a step belong its log line and its
    validation, so the checkpoint is written when the next step starts; at the end of that step where minutes have
    passed among several ranks, which all write then.
    """

    logs = ()

    def __init__(self, every_n_steps: int | None = None, every_n_minutes: float | None = None, keep: int = 2):
        self.every_n_steps, self.every_n_minutes, self.keep = every_n_steps, every_n_minutes, keep
        if problems := list(_unusable(every_n_steps, every_n_minutes, keep)):
            raise ConfigError(problems)
        self._saved, self._since = 0, time.monotonic()
        self._late = Highest()
        self._metrics: dict[str, Any] = {}

    def on_fit_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        trainer.callback_metrics.update(self._metrics)  # the latest of each, as if the run had never stopped

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self._saved, self._since = trainer.global_step, time.monotonic()

    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        late = self.every_n_minutes is not None and self._late(trainer, self._minutes() >= self.every_n_minutes)
        due = self.every_n_steps is not None and trainer.global_step % self.every_n_steps == 0
        if late or due:
            self.save(trainer)

    def on_train_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.save(trainer)

    def on_save_checkpoint(self, trainer: L.Trainer, module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint["metrics"] = {name: value.cpu() for name, value in trainer.callback_metrics.items()}

    def on_load_checkpoint(self, trainer: L.Trainer, module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        self._metrics = checkpoint.get("metrics", {})

    def save(self, trainer: L.Trainer) -> None:
        """Writes the checkpoint of this step, unless it is there already."""
        if trainer.global_step == self._saved:
            return
        save_last(trainer, self.keep)
        self._saved, self._since = trainer.global_step, time.monotonic()
        self._late.forget()

    def _minutes(self) -> float:
        return (time.monotonic() - self._since) / 60


class Best(L.Callback):
    """Writes best.ckpt whenever the metric called `monitor` reaches a new low (mode min) or high; NaN never does."""

    def __init__(self, monitor: str, mode: Literal["min", "max"] = "min"):
        self.monitor, self.mode = monitor, mode
        self.value, self.step = math.inf if mode == "min" else -math.inf, 0

    def on_validation_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        found = trainer.callback_metrics.get(self.monitor)
        if found is None or trainer.sanity_checking:
            return
        value = trainer.strategy.broadcast(float(found))  # all write or none, also where ranks found different values
        if value < self.value if self.mode == "min" else value > self.value:
            self.value, self.step = value, trainer.global_step
            save(trainer, "best")

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, "step": self.step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.value, self.step = state_dict["value"], state_dict["step"]


def save_last(trainer: L.Trainer, count: int) -> None:
    """Writes the checkpoint of this step, on every rank, and keeps it and the newest before it, `count` together."""
    save(trainer, named(trainer.global_step))
    if trainer.is_global_zero:
        keep(RunFolder(trainer.default_root_dir), trainer.global_step, count)


def save_now(trainer: L.Trainer) -> None:
    """Writes the checkpoint of this step as the callback that keeps them has it; without one, it alone is kept."""
    last = next((callback for callback in trainer.callbacks if isinstance(callback, Last)), None)  # type: ignore[attr-defined]
    save_last(trainer, 1) if last is None else last.save(trainer)


def save(trainer: L.Trainer, name: str) -> None:
    """Writes <run folder>/checkpoints/<name>.ckpt, on every rank; raises where the loss has become no number."""
    refuse = getattr(trainer.lightning_module, "refuse_divergence", None)
    if refuse is not None:
        refuse()
    trainer.save_checkpoint(RunFolder(trainer.default_root_dir).checkpoint(name))


def _unusable(steps: int | None, minutes: float | None, keep: int) -> list[Problem]:
    path = "callbacks.last"
    problems = []
    if steps is None and minutes is None:
        rule = "every_n_steps, every_n_minutes, or both"
        problems.append(Problem(path, "neither a number of steps nor of minutes", rule, f"{path}.every_n_steps=100"))
    if steps is not None and steps < 1:
        problems.append(Problem(f"{path}.every_n_steps", str(steps), "at least 1 step", "e.g. 100"))
    if minutes is not None and not 0 < minutes < math.inf:
        problems.append(Problem(f"{path}.every_n_minutes", str(minutes), "more than 0 minutes", "e.g. 15"))
    if keep < 1:
        problems.append(Problem(f"{path}.keep", str(keep), "at least 1 checkpoint", "e.g. 2"))
    return problems
