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

_known: dict[str, int] = {}  # many points of a sweep differ in what no cost depends on


def solved(config: dict[str, Any], budget: BudgetSpec) -> dict[str, Any]:
    """`config` with the solved key set and `budget.solved` filled in; raises ConfigError when nothing meets it."""
    key = json.dumps([config["budget"], config.get("model"), config.get("tokenizer")], sort_keys=True, default=repr)
    if key not in _known:
        _known[key] = _number(config, budget)
    filled = placed(config, budget.solve, _known[key])
    return filled | {"budget": {**config["budget"], "target": budget.target, "solved": _known[key]}}


def _number(config: dict[str, Any], budget: BudgetSpec) -> int:
    candidates = Candidates(config, budget)
    if budget.solve not in candidates.sizes:
        raise ConfigError([_no_size(candidates)])
    around = candidates.around()
    number = _best(candidates, around)
    if number is None:
        problem = _missed if any(around) else _impossible
        raise ConfigError([problem(config, candidates, around)])
    return number


def _best(candidates: Candidates, around: tuple[int | None, int | None]) -> int | None:
    """Of the numbers around the target the one that comes nearer, if that is near enough."""
    off = {number: abs(candidates.budget.off(candidates.cost(number))) for number in around if number is not None}
    best = min(off, key=off.__getitem__, default=None)
    return best if best is not None and candidates.budget.met(candidates.cost(best)) else None


def _no_size(candidates: Candidates) -> Problem:
    solve = candidates.budget.solve
    stated = [path for path, number in candidates.sizes.items() if number is not None]
    close = None if solve in TASK else nearest(solve, stated)
    rule = f"the path of a whole number in the model, and none of the task's: {', '.join(TASK)}"
    fix = f"budget.solve={close}" if close else f"budget.solve= one of {', '.join(stated)}"
    return Problem("budget.solve", repr(solve), rule, fix)


def _missed(config: dict[str, Any], candidates: Candidates, around: tuple[int | None, int | None]) -> Problem:
    budget, (low, high) = candidates.budget, around
    costs = {number: candidates.cost(number) for number in around if number is not None}
    reached = " and ".join(f"{cost:,} {budget.unit} at {number}" for number, cost in costs.items())
    if high is None:
        reached += f"; a larger one {_why_no_more(candidates, low or 1)}"
    if low is None:
        reached += ", the smallest that there is"
    rule = f"a cost within {100 * budget.tolerance:g}% of it; {budget.solve} gives {reached}"
    near = min(costs.values(), key=lambda cost: abs(budget.off(cost)))
    fixes = [*islice(_elsewhere(config, candidates), 2), f"budget.target={near}"]
    if low == candidates.limit:
        fixes.insert(0, f"{budget.solve}={low}, from which larger ones are tried")
    return Problem("budget.target", f"{budget.target:,}", rule, ", or ".join(fixes))


def _why_no_more(candidates: Candidates, low: int) -> str:
    more = next(filter(candidates.valid, range(low + 1, 2 * low + 1)), None)
    if more is None:
        return "isn't possible"
    return "costs no more" if candidates.cost(more) <= candidates.cost(low) else f"than {candidates.limit} is not tried"


def _elsewhere(config: dict[str, Any], candidates: Candidates) -> Iterator[str]:
    """Other keys that meet the target near what stands there, and what they would be."""
    budget = candidates.budget
    for path, stands in candidates.sizes.items():
        if path == budget.solve or stands is None:
            continue
        try:
            others = Candidates(config, budget.model_copy(update={"solve": path}), farthest=CLOSE)
            number = _best(others, others.around())
        except ConfigError:  # without a number at the key that was to be solved there is no model
            continue
        if number is not None:
            yield f"budget.solve={path}, which gives {others.cost(number):,} at {number}"


def _impossible(config: dict[str, Any], candidates: Candidates, around: tuple[int | None, int | None]) -> Problem:
    """What is wrong with the model where no number at the key makes one that can be built."""
    solve, start = candidates.budget.solve, candidates.start
    try:
        said = candidates.refused(start)
    except ConfigError as error:
        said = list(error.problems)
    if not said:
        rule = f"some number near {start} makes a model that can be built"
        return Problem("budget.solve", repr(solve), rule, "another key")
    first, rule = said[0], f"no number near {solve}={start} makes a model that can be built"
    return Problem(first.path, first.found, f"{first.rule}; {rule}", first.fix)
