"""Writes a sweep for W&B's agents: `python -m recipes.sweep_file file=sweep.yaml model.n_layers=2,4 seed=0,1,2`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from builder.cli import main, typed
from builder.errors import ArchlabError
from builder.experiments.tracking.sweep_file import sweep, written
from builder.load import read
from builder.section import Section
from builder.whole import write_whole


class SweepFileSpec(Section):
    """Where the file goes, how W&B chooses points, and what for; all other words are overrides of recipes.train."""

    file: str
    method: Literal["grid", "random", "bayes"]
    metric: str
    goal: Literal["minimize", "maximize"]


def job(words: Sequence[str], config: dict[str, Any]) -> None:
    """Writes the file, and says how it is used."""
    spec = read(SweepFileSpec, config)
    content = sweep(words, spec.method, spec.metric, spec.goal)
    try:
        write_whole(Path(spec.file), written(content, spec.file))
    except OSError as error:
        raise ArchlabError(f"file: {spec.file} can't be written ({error.strerror}); choose another file=") from None
    console = Console()
    console.out(f"{spec.file} has {_size(content)}", highlight=False)
    console.out(f"next: wandb sweep {spec.file}", highlight=False)


def _size(content: dict[str, Any]) -> str:
    axes = content["parameters"]
    points = 1
    for axis in axes.values():
        points *= len(axis["values"]) if "values" in axis else 0
    count = "1 axis" if len(axes) == 1 else f"{len(axes)} axes"
    return f"{count}, {points} points" if points else count


def _apart(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words that are about the file, and those that are overrides."""
    own = [word for word in words if word.partition("=")[0] in SweepFileSpec.model_fields]
    return own, [word for word in words if word not in own]


def command() -> None:
    """The command line: what is about the file is composed here, and the rest is the sweep's."""
    about, overrides = _apart(typed())
    sys.argv[1:] = [word for word in sys.argv[1:] if word not in overrides]
    main(partial(job, overrides), "sweep_file")


if __name__ == "__main__":
    command()
