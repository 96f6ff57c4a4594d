"""Lightning's logger for metrics.jsonl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers.logger import Logger

from builder.disk import room_for
from builder.experiments.metrics import Axes, finite

_BOOKKEEPING = {"epoch"}  # of Lightning; a run here is one endless epoch


class JsonlLogger(Logger):
    """Appends a JSON line for each time something is logged, with its axes; raises DiskFull where it doesn't fit."""

    def __init__(self, path: Path, axes: Axes):
        super().__init__()
        self.path, self.axes = path, axes

    @property
    def name(self) -> str:
        return "metrics"

    @property
    def version(self) -> int:
        return 0

    @rank_zero_only
    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: config.yaml has them."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        done = (step or 0) + 1  # Lightning counts the step under way from 0
        row = self.axes.at(done) | {name: metrics[name] for name in sorted(metrics.keys() - _BOOKKEEPING)}
        row = {name: finite(value) for name, value in row.items()}
        with room_for(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
