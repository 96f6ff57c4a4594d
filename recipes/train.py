"""Trains a run, or with -m a sweep: `python -m recipes.train [overrides]`, or goes on with one: `resume=RUNDIR`."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from builder import ConfigError, load
from builder.cli import main, typed
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
        _refuse_others(folder)
        resume(folder, console)


def _refuse_others(folder: str) -> None:
    """Raises ConfigError for what was typed beside `resume`, since a run goes on with its frozen config."""
    keys = [word.lstrip("+~").partition("=")[0] for word in typed()]
    others = [key for key in keys if key != "resume" and not key.startswith("hydra")]
    rule = "a run goes on with its frozen config, and nothing else can be set"
    if others:
        fix = f"resume={folder} alone, or a new run without resume"
        raise ConfigError([Problem(key, f"a value beside resume={folder}", rule, fix) for key in others])


if __name__ == "__main__":
    main(job, "train")
