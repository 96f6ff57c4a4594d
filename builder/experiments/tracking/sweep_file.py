"""A sweep for W&B's own agents: overrides with several values become the parameters of a sweep file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from builder.compose import TEXTS, compose, reason
from builder.errors import ArchlabError, ConfigError, Problem
from builder.load import load

PROGRAM = "recipes/train.py"
COMMAND = ("${env}", "${interpreter}", "-m", "recipes.train")
"""What an agent runs, from the root of the project; the values of a point follow as overrides."""

TRIED = 64
"""Points of the grid that are looked at until one is a valid config."""

METHODS = ("grid", "random", "bayes")
_FOR_M = ("sweep", "resume")


def sweep(words: Sequence[str], method: str, metric: str, goal: str) -> dict[str, Any]:
    """The sweep that W&B reads, as plain Python: overrides with several values are swept, the others are of each run.

    Raises ConfigError where a word can't be part of such a sweep, and ArchlabError where no point of it is valid.
    """
    swept, fixed, problems = [], [], []
    texts = [word for word in words if word.partition("=")[0] in TEXTS]  # taken as typed, commas and all
    fixed += texts
    others = [word for word in words if word not in texts]
    for word, override in zip(others, _parsed(others), strict=True):
        key = override.get_key_element()
        if key in _FOR_M or override.is_hydra_override():
            rule = "overrides of a run, some of them with several values: the axes in conf/sweep/ are for -m"
            problems.append(Problem(key, word, rule, "the axes written out, e.g. model.n_layers=2,4"))
        elif override.is_sweep_override():
            swept.append(override)
        else:
            fixed.append(word)
    if not swept and not problems:
        problems.append(Problem("overrides", "none with several values", "at least one axis", "e.g. seed=0,1,2"))
    parameters = {override.get_key_element(): _values(override, method, problems) for override in swept}
    if problems:
        raise ConfigError(problems)
    _one_is_valid(fixed, parameters)
    return {
        "program": PROGRAM,
        "method": method,
        "metric": {"name": metric, "goal": goal},
        "parameters": parameters,
        "command": [*COMMAND, *fixed, "${args_no_hyphens}"],
    }


def written(content: dict[str, Any], file: str) -> str:
    """The text of a sweep file, with what is done with it on top."""
    opening = (
        f"# A sweep for W&B's agents: `wandb sweep {file}`, then `wandb agent` as it says, in the project's root.\n"
    )
    return opening + yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def _parsed(words: Sequence[str]) -> list[Override]:
    try:
        return OverridesParser.create().parse_overrides(list(words))
    except HydraException as error:
        raise ArchlabError(reason(error)) from None


def _values(override: Override, method: str, problems: list[Problem]) -> dict[str, Any]:
    """The values of an axis as W&B has them: listed, or the ends of an interval."""
    if not override.is_interval_sweep():
        texts = list(override.sweep_string_iterator())
        return {"values": [_plain(text) for text in texts]}
    interval: Any = override.value()
    if method == METHODS[0]:
        rule = f"a grid has listed values; an interval goes with method={' or '.join(METHODS[1:])}"
        problems.append(Problem(override.get_key_element(), str(override.input_line), rule, "e.g. choice(1e-4,1e-3)"))
    return {"min": interval.start, "max": interval.end}


def _plain(text: str) -> Any:
    """A number as a number, so that W&B can draw it as one; all else as Hydra reads it."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if float(str(number)) == float(text):
            return number
    return text


def _one_is_valid(fixed: Sequence[str], parameters: dict[str, Any]) -> None:
    """Raises what is wrong with the first point, unless one of the first TRIED is right."""
    first: ArchlabError | None = None
    for point in islice(_points(parameters), TRIED):
        try:
            load(compose([*fixed, *point]))
            return
        except ArchlabError as error:
            first = first or error
    raise ArchlabError(f"no point of the sweep is a valid config; of the first:\n{first}")


def _points(parameters: dict[str, Any]) -> Iterator[list[str]]:
    axes = [[f"{key}={value}" for value in axis.get("values", axis.values())] for key, axis in parameters.items()]
    yield from (list(point) for point in product(*axes))
