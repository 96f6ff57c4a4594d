"""Trains a run, or with -m a sweep: `python -m recipes.train [overrides]`, or goes on with one: `resume=RUNDIR`."""

from __future__ import annotations

from functools import reduce
from typing import Any

from rich.console import Console

from builder import ConfigError, load
from builder.cli import main, typed
from builder.errors import Problem
from builder.experiments.train import resume, train
from builder.spec import EXECUTION


def job(config: dict[str, Any]) -> None:
    """Trains the run that the config describes, or goes on with the one in `resume`."""
    console = Console()
    folder = config.pop("resume", None)
    if folder is None:
        train(load(config), console)
    elif not isinstance(folder, str):
        raise ConfigError([Problem("resume", repr(folder), "the folder of a run", "resume=outputs/main/<run>")])
    else:
        resume(folder, console, _execution(folder, config))


def _execution(folder: str, config: dict[str, Any]) -> dict[str, Any]:
    """What was typed beside `resume` of how a run is computed; raises ConfigError for all else, which is frozen."""
    keys = [word.lstrip("+~").partition("=")[0] for word in typed()]
    others = [key for key in keys if key != "resume" and not key.startswith("hydra")]
    wanted = [path for path in EXECUTION if any(path == key or path.startswith(f"{key}.") for key in others)]
    wrong = [key for key in others if not any(path == key or path.startswith(f"{key}.") for path in EXECUTION)]
    rule = f"a run goes on with its frozen config; only how it is computed may be another: {', '.join(EXECUTION)}"
    if wrong:
        fix = f"resume={folder} without it, or a new run without resume"
        raise ConfigError([Problem(key, f"a value beside resume={folder}", rule, fix) for key in wrong])
    return {path: reduce(lambda node, key: (node or {}).get(key), path.split("."), config) for path in wanted}


if __name__ == "__main__":
    main(job, "train")
