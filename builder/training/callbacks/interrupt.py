"""Ctrl-C: the step under way is finished, the checkpoint written, and the run ends as interrupted."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Self

import lightning as L
from rich.console import Console

from .checkpoint import save

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    """A run that was asked to stop, and stopped."""


class Interrupt(L.Callback):
    """Ends the run with the step under way after SIGINT or SIGTERM; a second signal ends it at once.

    As a context manager it lends its handlers to whatever happens inside and gives back those it found.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._ask) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        for number in _SIGNALS:  # Lightning has put its own handler of SIGTERM in front
            signal.signal(number, self._ask)

    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        if self._asked:  # the step before is complete: logged, and validated where that was due
            save(trainer, "last")
            raise Interrupted(f"interrupted after step {trainer.global_step}")

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise Interrupted("stopped at once")  # a KeyboardInterrupt would make Lightning exit
        self._asked = True
        self.console.print("\nstopping after this step; once more to stop at once", highlight=False)
