"""How fast a run goes and what it holds: between two log lines, validation left out."""

from __future__ import annotations

import time
from typing import Any

import lightning as L
import torch

from builder.experiments.metrics import Axes
from builder.resident import resident_peak
from builder.training.peaks import peak_of


class Speed(L.Callback):
    """Logs every `trainer.log_every_n_steps` steps, since the last such line:

    perf/tokens_per_second
    perf/waiting            the share of the time that no step was under way: batches being read, callbacks
    perf/mfu                FLOPs of the ledger, forward and backward, over those that the device's maker states; left
                            out where he isn't known
    perf/peak_memory_gib    the most that torch has allocated on the GPU, or that the process has held, by now
    """

    def __init__(self, axes: Axes):
        self.axes = axes
        self._since, self._steps, self._paused = time.perf_counter(), 0, 0.0
        self._idle, self._ended = 0.0, time.perf_counter()
        self._peak: float | None = None

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self._peak = peak_of(module.device, str(trainer.precision))
        self._restart()

    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        self._idle += time.perf_counter() - self._ended

    def on_train_batch_end(self, trainer: L.Trainer, module: L.LightningModule, *_: Any) -> None:
        self._steps += 1
        every: int = trainer.log_every_n_steps  # pyright: ignore[reportAttributeAccessIssue]
        if trainer.global_step % every == 0:
            seconds = time.perf_counter() - self._since
            done = self.axes.at(self._steps)
            told = {"perf/tokens_per_second": done["tokens"] / seconds, "perf/waiting": self._idle / seconds}
            if self._peak is not None:
                told["perf/mfu"] = done["flops"] / seconds / self._peak / trainer.world_size
            module.log_dict(told | {"perf/peak_memory_gib": _held(module.device) / 2**30})
            self._restart()
        self._ended = time.perf_counter()

    def on_validation_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self._paused = time.perf_counter()

    def on_validation_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        gone = time.perf_counter() - self._paused
        self._since += gone
        self._ended += gone

    def _restart(self) -> None:
        self._since, self._steps = time.perf_counter(), 0
        self._idle, self._ended = 0.0, self._since


def _held(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else resident_peak()
