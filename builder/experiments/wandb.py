"""The run in Weights & Biases: online when logged in, else offline in the run folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from builder.spec import RunSpec

from .metrics import Axes

PATIENCE = 300
"""Seconds that the end of a run waits for its last rows to be sent, unless WANDB_FINISH_TIMEOUT says otherwise; what
isn't sent by then lies in the run folder, and `wandb sync` sends it."""


def logger(
    project: str,
    folder: Path,
    spec: RunSpec,
    axes: Axes,
    summary: Mapping[str, int],
    mode: Literal["auto", "online", "offline"] = "auto",
    entity: str | None = None,
) -> Any:
    """A W&B run of this run: `auto` is online when an API key is there, else offline; None if W&B can't start.

    A server that can't be reached later on holds nothing up: W&B sends again by itself, and the first fault that it
    doesn't handle is warned of.
    """
    import wandb
    from lightning.pytorch.loggers import WandbLogger

    class RunLogger(WandbLogger):
        """Lightning's logger, with the axes `step`, `tokens` and `flops` in each row."""

        def log_metrics(self, metrics: Any, step: int | None = None) -> None:
            with forgiving:
                super().log_metrics(dict(metrics) | axes.at((step or 0) + 1))

        def log_image(self, key: str, images: list[Any], step: int | None = None, **kwargs: Any) -> None:
            with forgiving:
                super().log_image(key, images, step, **kwargs)

    forgiving = _Forgiving(folder)
    os.environ.setdefault("WANDB_SILENT", "true")
    try:
        online = mode == "online" or (mode == "auto" and wandb.login(prompt=False))
        run = RunLogger(
            project=project,
            entity=entity,
            name=folder.name,
            group=spec.output.experiment,
            tags=list(spec.output.tags),
            save_dir=str(folder),
            mode="online" if online else "offline",
            config=spec.to_dict(),
            settings=wandb.Settings()
            if "WANDB_FINISH_TIMEOUT" in os.environ
            else wandb.Settings(finish_timeout=PATIENCE),
        )
        run.experiment.define_metric("step")
        run.experiment.define_metric("*", step_metric="step")
        run.experiment.summary.update(dict(summary))
    except wandb.Error as error:
        print(
            f"warning: W&B did not start ({type(error).__name__}: {error}); the run goes on without it, "
            f"and {folder / 'metrics.jsonl'} has every metric; logger=none or logger=wandb_offline avoids this",
            file=sys.stderr,
        )
        return None
    return run


def close(status: str) -> None:
    """Ends the W&B run under way, if any, as completed or failed: the next run of the process gets its own."""
    wandb = sys.modules.get("wandb")
    if wandb is not None and wandb.run is not None:
        with _Forgiving():
            wandb.run.summary["status"] = status
            wandb.finish(exit_code=0 if status == "completed" else 1)


class _Forgiving:
    """A context whose faults are not the run's: the first one is warned of, and the run goes on."""

    def __init__(self, folder: Path | None = None) -> None:
        self._where = f", and {folder / 'metrics.jsonl'} has every metric" if folder is not None else ""
        self._warned = False

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, Exception):  # nothing, or a signal that means the run itself
            return False
        if not self._warned:
            print(
                f"warning: W&B fails ({type(error).__name__}: {error}); the run goes on{self._where}", file=sys.stderr
            )
        self._warned = True
        return True
