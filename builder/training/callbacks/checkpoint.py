"""Checkpoints of the best and of the last step, in the run folder."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import lightning as L

from builder.errors import ConfigError, Problem


class Last(L.Callback):
    """Writes last.ckpt every `every_n_steps` optimizer steps and at the end.

    To a step belong its log line and its validation, so the checkpoint is written when the next step starts.
    """

    def __init__(self, every_n_steps: int):
        if every_n_steps < 1:
            problem = Problem("callbacks.last.every_n_steps", str(every_n_steps), "at least 1 step", "e.g. 100")
            raise ConfigError([problem])
        self.every_n_steps = every_n_steps

    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step and trainer.global_step % self.every_n_steps == 0:
            save(trainer, "last")

    def on_train_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        save(trainer, "last")


class Best(L.Callback):
    """Writes best.ckpt whenever the metric called `monitor` reaches a new low; NaN never does."""

    def __init__(self, monitor: str):
        self.monitor = monitor
        self.value, self.step = math.inf, 0

    def on_validation_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        value = trainer.callback_metrics.get(self.monitor)
        if value is not None and not trainer.sanity_checking and float(value) < self.value:
            self.value, self.step = float(value), trainer.global_step
            save(trainer, "best")

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, "step": self.step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.value, self.step = state_dict["value"], state_dict["step"]


def save(trainer: L.Trainer, name: str) -> None:
    """Writes <run folder>/checkpoints/<name>.ckpt."""
    trainer.save_checkpoint(Path(trainer.default_root_dir, "checkpoints", f"{name}.ckpt"))
