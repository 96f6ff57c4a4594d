"""Lightning's logger for W&B with the axes of a run in each row, and its steps as W&B's own."""

from __future__ import annotations

from typing import Any

from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers import WandbLogger

from builder.experiments.metrics import Axes

from .forgiving import Forgiving


class RunLogger(WandbLogger):
    """Logs to a W&B run that was begun already.

    W&B's own step is the optimizer step, so what is logged after one step is one row. A run that goes on from a
    checkpoint trains some steps again: of those up to `known`, W&B has the rows.
    """

    def __init__(self, run: Any, axes: Axes, known: int, forgiving: Forgiving):
        super().__init__(experiment=run, project=run.project, name=run.name, save_dir=run.dir)
        self.axes, self.known, self.forgiving = axes, known, forgiving

    @rank_zero_only
    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: the run was begun with its config."""

    @rank_zero_only
    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        self.log_row(metrics, (step or 0) + 1)  # Lightning counts the step under way from 0

    def log_row(self, metrics: Any, done: int) -> None:
        """Logs what belongs to the first `done` optimizer steps."""
        if done > self.known:
            row = {key: value for key, value in metrics.items() if key != "epoch"}  # of which a run here has one
            with self.forgiving:
                self.experiment.log(row | self.axes.at(done), step=done)

    @rank_zero_only
    def log_image(self, key: str, images: list[Any], step: int | None = None, **kwargs: Any) -> None:
        with self.forgiving:
            super().log_image(key, images, step, **kwargs)
