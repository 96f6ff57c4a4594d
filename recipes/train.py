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

UNSAID = {"trainer.num_nodes": 1, "trainer.strategy": "auto", "trainer.accelerator": "auto", "trainer.devices": 1}
"""What a trainer means that doesn't say it."""


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
    wanted: set[str] = set()
    problems = []
    rule = (
        f"a run goes on with its frozen config; only how it is computed may be another: {', '.join(EXECUTION)}, or the"
    )
    for word in typed():
        key, _, value = word.lstrip("+~").partition("=")
        paths = [path for path in EXECUTION if key == path or key.startswith(f"{path}.")]
        if key == "trainer" and not value.startswith("{"):  # the group: of it, what says how
            paths = [path for path in EXECUTION if path.startswith("trainer.")]
        wanted.update(paths)
        if not paths and key != "resume" and not key.startswith("hydra"):
            fix = f"resume={folder} without it, or a new run without resume"
            problems.append(Problem(key, f"a value beside resume={folder}", f"{rule} group trainer", fix))
    if problems:
        raise ConfigError(problems)
    return {path: _value(config, path) for path in EXECUTION if path in wanted}


def _value(config: dict[str, Any], path: str) -> Any:
    """What stands at a path, or Lightning's own choice where nothing does."""
    *parents, key = path.split(".")
    return reduce(lambda node, parent: node.get(parent, {}), parents, config).get(key, UNSAID.get(path))


if __name__ == "__main__":
    main(job, "train")
