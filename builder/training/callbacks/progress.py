"""A progress bar over the optimizer steps, with the losses beside it; plain lines where there is no terminal."""

from __future__ import annotations

from typing import Any

import lightning as L
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(bar_width=24),
    MofNCompleteColumn(),
    TextColumn("{task.fields[figures]}"),
    TimeElapsedColumn(),
    TextColumn("left"),
    TimeRemainingColumn(),
)


class ProgressBar(L.Callback):
    """Shows steps done, training and validation loss, tokens a second, and the time left."""

    def __init__(self, console: Console):
        self.console = console
        self._bar = Progress(*_COLUMNS, console=console)
        self._task = self._bar.add_task("training", total=None, figures="")

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self._bar.update(self._task, total=trainer.max_steps, completed=trainer.global_step)
        if self.console.is_terminal:
            self._bar.start()

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        every: int = trainer.log_every_n_steps  # pyright: ignore[reportAttributeAccessIssue]
        self._bar.update(self._task, completed=trainer.global_step)
        if trainer.global_step % every == 0:
            self._bar.update(self._task, figures=_figures(trainer))

    def on_validation_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self._bar.update(self._task, description="validating")

    def on_validation_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self._bar.update(self._task, description="training", figures=_figures(trainer))
        self._bar.console.print(
            f"step {trainer.global_step:>6} of {trainer.max_steps}  {_figures(trainer)}", highlight=False
        )

    def on_exception(self, trainer: L.Trainer, module: L.LightningModule, exception: BaseException) -> None:
        self._bar.stop()

    def on_train_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self._bar.stop()


def _figures(trainer: L.Trainer) -> str:
    shown = {"train/loss": "loss {:.3f}", "val/loss": "val {:.3f}", "perf/tokens_per_second": "{:,.0f} tok/s"}
    metrics = trainer.callback_metrics
    return "  ".join(form.format(float(metrics[name])) for name, form in shown.items() if name in metrics)
