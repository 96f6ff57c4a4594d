"""Ctrl-C: the step under way is finished, the checkpoint written, and the run ends as interrupted."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

import lightning as L

from .checkpoint import save


class Interrupted(Exception):
    """A run that was asked to stop, and stopped at a step from which it can go on."""


class Interrupt(L.Callback):
    """Ends the run at the next step after SIGINT or SIGTERM; a second signal ends it at once."""

    def __init__(self) -> None:
        self._asked = False
        self._before: dict[int, Any] = {}

    def on_fit_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._ask)

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if self._asked:
            save(trainer, "last")
            raise Interrupted(f"interrupted after step {trainer.global_step}")

    def teardown(self, trainer: L.Trainer, module: L.LightningModule, stage: str) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
