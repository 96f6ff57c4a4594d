"""How fast a run goes: tokens a second between two log lines, validation left out."""

from __future__ import annotations

import time
from typing import Any

import lightning as L


class Speed(L.Callback):
    """Logs perf/tokens_per_second every `trainer.log_every_n_steps` steps."""

    def __init__(self, tokens_per_step: int):
        self.tokens_per_step = tokens_per_step
        self._since, self._steps, self._paused = time.perf_counter(), 0, 0.0

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self._restart()

    def on_train_batch_end(self, trainer: L.Trainer, module: L.LightningModule, *_: Any) -> None:
        self._steps += 1
        every: int = trainer.log_every_n_steps  # pyright: ignore[reportAttributeAccessIssue]
        if trainer.global_step % every == 0:
            seconds = time.perf_counter() - self._since
            module.log("perf/tokens_per_second", self._steps * self.tokens_per_step / seconds)
            self._restart()

    def on_validation_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self._paused = time.perf_counter()

    def on_validation_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self._since += time.perf_counter() - self._paused

    def _restart(self) -> None:
        self._since, self._steps = time.perf_counter(), 0
