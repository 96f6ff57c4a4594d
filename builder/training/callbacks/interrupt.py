"""Ctrl-C and its kin: the step under way is finished, the checkpoint written, and the run ends as interrupted."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Self

import lightning as L
from rich.console import Console

from .agreement import Highest
from .checkpoint import save_now

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
"""In order of weight: where ranks got different ones, the last counts."""


class Interrupted(BaseException):
    """A run that was asked to stop, and stopped: no fault, so that nothing on the way out handles it as one."""


class Preempted(Interrupted):
    """A run whose time was up, as SIGUSR1 says: it stopped, and is to be started again."""


class Interrupt(L.Callback):
    """Ends the run with the step under way after SIGINT, SIGTERM or SIGUSR1; a Ctrl-C after that ends it at once.

    SIGTERM and SIGUSR1 don't: who sends them kills when waiting is over, and a run that is killed goes on from its last
    checkpoint. SIGUSR1 is how SLURM announces the end of a job's time, `#SBATCH --signal=USR1@300`. Among several ranks
    it is enough that one is told: all stop together, one step later than it alone would.

    As a context manager it lends its handlers to whatever happens inside and gives back those it found.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._asked = 0  # the number of the signal in _SIGNALS, from 1 on
        self._among_ranks = Highest()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._ask) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        for number in _SIGNALS:  # Lightning has put its own handlers in front
            signal.signal(number, self._ask)

    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        asked = self._among_ranks(trainer, self._asked)
        if not asked:
            return
        save_now(trainer)  # the step before is complete: logged, and validated where that was due
        number = _SIGNALS[asked - 1]
        by = "" if number == signal.SIGINT else f" by {number.name}"
        kind = Preempted if number == signal.SIGUSR1 else Interrupted
        raise kind(f"interrupted{by} after step {trainer.global_step}")

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._asked and number == signal.SIGINT:
            raise Interrupted("stopped at once")  # a KeyboardInterrupt would make Lightning exit
        again = bool(self._asked)
        self._asked = max(self._asked, _SIGNALS.index(signal.Signals(number)) + 1)
        if not again:
            self.console.print("\nstopping after this step; another Ctrl-C stops at once", highlight=False)
