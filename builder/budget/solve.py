"""From a config with a budget to one with a number; where no number meets it, what could be reached instead."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from builder.errors import ConfigError, Problem, nearest

from .candidates import TASK, Candidates, placed
from .spec import BudgetSpec

CLOSE = 4
"""By how much other keys may grow where they are tried in the place of one that meets no target."""

_known: dict[str, list[int]] = {}  # many points of a sweep differ in what no cost depends on


def solved(config: dict[str, Any], budget: BudgetSpec) -> dict[str, Any]:
    """`config` with the solved keys set and `budget.solved` filled in; raises ConfigError when nothing meets it."""
    key = json.dumps([config["budget"], config.get("model"), config.get("tokenizer")], sort_keys=True, default=repr)
    if key not in _known:
        _known[key] = _numbers(config, budget)
    numbers = _known[key]
    for path, number in zip(budget.keys, numbers, strict=True):
        config = placed(config, path, number)
    told = numbers[0] if isinstance(budget.solve, str) else numbers
    return config | {"budget": {**config["budget"], "target": budget.target, "solved": told}}


def _numbers(config: dict[str, Any], budget: BudgetSpec) -> list[int]:
    """A number for each key, the last of which must meet the target."""
    numbers: list[int] = []
    for key in budget.keys:
        candidates = Candidates(config, budget, key)
        if key not in candidates.sizes:
            raise ConfigError([_no_size(candidates)])
        around = candidates.around()
        number = _nearer(candidates, around)
        if number is None:
            raise ConfigError([_impossible(candidates)])
        if key == budget.keys[-1] and not budget.met(candidates.cost(number)):
            raise ConfigError([_missed(config, candidates, around, number)])
        numbers.append(number)
        config = placed(config, key, number)
    return numbers


def _nearer(candidates: Candidates, around: tuple[int | None, int | None]) -> int | None:
    """Of the numbers around the target the one that comes nearer; None where there is none."""
    off = {number: abs(candidates.budget.off(candidates.cost(number))) for number in around if number is not None}
    return min(off, key=off.__getitem__, default=None)


def _no_size(candidates: Candidates) -> Problem:
    solve = candidates.key
    stated = [path for path, number in candidates.sizes.items() if number is not None]
    close = None if solve in TASK else nearest(solve, stated)
    rule = f"the path of a whole number in the model, and none of the task's: {', '.join(TASK)}"
    fix = f"budget.solve={close}" if close else f"budget.solve= one of {', '.join(stated)}"
    return Problem("budget.solve", repr(solve), rule, fix)


def _missed(
    config: dict[str, Any], candidates: Candidates, around: tuple[int | None, int | None], near: int
) -> Problem:
    budget, (low, high) = candidates.budget, around
    costs = {number: candidates.cost(number) for number in around if number is not None}
    reached = " and ".join(f"{cost:,} {budget.unit} at {number}" for number, cost in costs.items())
    if high is None:
        reached += f"; a larger one {_why_no_more(candidates, near)}"
    if low is None:
        reached += ", the smallest that there is"
    rule = f"a cost within {100 * budget.tolerance:g}% of it; {candidates.key} gives {reached}"
    fixes = [*islice(_elsewhere(config, candidates, near), 2), f"budget.target={costs[near]}"]
    if low == candidates.limit:
        fixes.insert(0, f"{candidates.key}={low}, from which larger ones are tried")
    return Problem("budget.target", f"{budget.target:,}", rule, ", or ".join(fixes))


def _why_no_more(candidates: Candidates, low: int) -> str:
    more = next(filter(candidates.valid, range(low + 1, 2 * low + 1)), None)
    if more is None:
        return "isn't possible"
    return "costs no more" if candidates.cost(more) <= candidates.cost(low) else f"than {candidates.limit} is not tried"


def _elsewhere(config: dict[str, Any], candidates: Candidates, near: int) -> Iterator[str]:
    """Other keys that meet the target, from what came nearest with the keys that were asked for."""
    budget, sizes = candidates.budget, candidates.sizes
    asked = [key for key in budget.keys if key != candidates.key or near != candidates.given]
    for path, stands in sizes.items():
        if path in budget.keys or stands is None:
            continue
        try:
            others = Candidates(placed(config, candidates.key, near), budget, path, farthest=CLOSE)
            number = _nearer(others, others.around())
        except ConfigError:  # it makes no model with what came nearest
            continue
        if number is not None and budget.met(others.cost(number)):
            keys = f"[{','.join([*asked, path])}]" if asked else path
            yield f"budget.solve={keys}, which gives {others.cost(number):,} at {path}={number}"


def _impossible(candidates: Candidates) -> Problem:
    """What is wrong with the model where no number at the key makes one that can be built."""
    key, start = candidates.key, candidates.start
    try:
        said = candidates.refused(start)
    except ConfigError as error:
        said = list(error.problems)
    if not said:
        rule = f"some number near {start} makes a model that can be built"
        return Problem("budget.solve", repr(key), rule, "another key")
    first, rule = said[0], f"no number near {key}={start} makes a model that can be built"
    return Problem(first.path, first.found, f"{first.rule}; {rule}", first.fix)
