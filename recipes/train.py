"""Trains a run, or with -m a sweep: `python -m recipes.train [overrides]`, or goes on with one: `resume=RUNDIR`."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from builder import ConfigError, load
from builder.cli import main
from builder.errors import Problem
from builder.experiments.train import resume, train


def job(config: dict[str, Any]) -> None:
    """Trains the run that the config describes, or goes on with the one in `resume`."""
    console = Console()
    folder = config.pop("resume", None)
    if folder is None:
        train(load(config), console)
    elif not isinstance(folder, str):
        raise ConfigError([Problem("resume", repr(folder), "the folder of a run", "resume=outputs/main/<run>")])
    else:
        resume(folder, console)


if __name__ == "__main__":
    main(job, "train")
