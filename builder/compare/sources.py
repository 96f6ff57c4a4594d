"""Where runs come from: each source of a comparison in its turn, then what `where` leaves of them."""

from __future__ import annotations

import yaml

from builder.errors import ArchlabError

from .groups import where
from .reading import read, read_folder
from .run import Run
from .settings import WANDB, CompareSpec
from .yaml_values import parse


def gather(spec: CompareSpec) -> list[Run]:
    """The runs that a comparison is of. Raises ArchlabError where none is left."""
    found: dict[str, Run] = {}
    for source in spec.sources:
        for run in _read(source):
            found.setdefault(run.where, run)
    runs = list(found.values())
    kept = where(runs, [(path, _values(text)) for path, _, text in (word.partition("=") for word in spec.filters)])
    if runs and not kept:
        raise ArchlabError(f"where: found {', '.join(spec.filters)}, which none of {len(runs)} runs has; ask for less")
    return kept


def side(name: str, runs: list[Run]) -> Run:
    """The run that one side of `diff` names: one of `runs` by its name or its place, else that of a folder."""
    named = [run for run in runs if name in (run.where, run.name)]
    if len(named) > 1:
        places = ", ".join(run.where for run in named)
        raise ArchlabError(f"diff: found {name!r}, which {len(named)} runs are called; write one of {places}")
    return named[0] if named else read_folder(name)


def _read(source: str) -> list[Run]:
    if not source.startswith(WANDB):
        return read(source)
    from .wandb_runs import read as from_wandb  # imports wandb

    return from_wandb(source.removeprefix(WANDB))


def _values(text: str) -> list[object]:
    """The values that a|b stands for."""
    try:
        return [parse(part) for part in text.split("|")]
    except yaml.YAMLError:
        raise ArchlabError(f"where: found {text!r}, which is no YAML value; write path=value or path=a|b") from None
