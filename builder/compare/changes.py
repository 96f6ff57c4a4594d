"""What was changed between two runs, and what each change of the architecture costs, made one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from html import escape
from itertools import combinations
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from builder.errors import ArchlabError
from builder.ledger import ledger
from builder.load import read
from builder.spec import ModelSpec

from .apart import ABSENT_VALUE, belongs, shown
from .groups import telling
from .page import html_table
from .run import Run

COSTS = {
    "params": "params",
    "active_params": "active",
    "flops_per_token": "FLOPs/token",
    "state_bytes_per_token": "state B/token",
}
"""The costs that are followed: the ledger's name of each, and its words."""

Step = tuple[str, Callable[[dict[str, Any]], None]]
"""One change in words, and what makes it in a model's config."""


@dataclass(frozen=True)
class Change:
    """One change, or several that only work together, and by how much each cost grows with it."""

    what: tuple[str, ...]
    costs: Mapping[str, int]


@dataclass(frozen=True)
class Difference:
    """Two runs: what their architectures cost, the changes from the first to the second in the order in which they were
    made, whose costs add up to the difference, and what else differs in their configs."""

    first: str
    second: str
    before: Mapping[str, int]
    after: Mapping[str, int]
    changes: tuple[Change, ...]
    others: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain Python."""
        return asdict(self)


def difference(first: Run, second: Run) -> Difference:
    """What was changed from the first run to the second. Raises ArchlabError where one has no config, or none that this
    version can build."""
    models = [_model(run) for run in (first, second)]
    specs = [_plain(run, model) for run, model in zip((first, second), models, strict=True)]
    before, after = (_costs(model) for model in specs)
    changes, now, held = [], specs[0], before
    left = list(_steps(*specs, path="model"))
    while left:
        chosen, now, costs = _next(left, now)
        left = [step for step in left if step not in chosen]
        grown = {name: costs[name] - held[name] for name in COSTS}
        changes.append(Change(tuple(what for what, _ in chosen), grown))
        held = costs
    return Difference(first.where, second.where, before, after, tuple(changes), tuple(_others(first, second)))


def render(found: Difference) -> RenderableType:
    """A rich renderable: a line a change, the sums below, and what else differs."""
    title = f"\nWhat was changed\nA {found.first}\nB {found.second}"
    table = Table(title=Text(title), title_style="bold", title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("", overflow="fold")
    for words in COSTS.values():
        table.add_column(words, justify="right", no_wrap=True)
    table.add_row("A", *(f"{found.before[name]:,}" for name in COSTS))
    for change in found.changes:
        table.add_row(Text("\n".join(change.what)), *(_grown(change.costs[name]) for name in COSTS))
    table.add_row("B", *(f"{found.after[name]:,}" for name in COSTS))
    notes = [] if found.changes else ["the architectures are the same"]
    if len(found.changes) > 1:
        notes.append("one at a time, in this order: another one may share the costs out otherwise")
    notes += [f"besides: {', '.join(found.others)}"] if found.others else []
    return Group(table, *(Text(line, style="dim") for line in notes))


def section(found: Difference) -> str:
    """The same as a section of the page."""
    rows = [[f"A {found.first}", *((f"{found.before[name]:,}", found.before[name]) for name in COSTS)]]
    rows += [["; ".join(c.what), *((_grown(c.costs[name]), c.costs[name]) for name in COSTS)] for c in found.changes]
    rows += [[f"B {found.second}", *((f"{found.after[name]:,}", found.after[name]) for name in COSTS)]]
    others = f"<p>Besides: {escape(', '.join(found.others))}</p>" if found.others else ""
    return f"<h2>What was changed</h2>{html_table(['', *COSTS.values()], rows)}{others}"


def _grown(costs: int) -> str:
    return f"{costs:+,}" if costs else "0"


def _model(run: Run) -> dict[str, Any]:
    model = run.config.get("model")
    if not isinstance(model, Mapping):
        raise ArchlabError(f"diff: {run.where} has no config that can be read; choose a run that was begun")
    return deepcopy(dict(model))


def _plain(run: Run, model: dict[str, Any]) -> dict[str, Any]:
    """The model with every default filled in."""
    try:
        return read(ModelSpec, model).model_dump(mode="json")
    except ArchlabError as error:
        raise ArchlabError(f"diff: this version can't build the model of {run.where}: {error}") from None


def _costs(model: dict[str, Any]) -> dict[str, int]:
    costs = ledger(read(ModelSpec, deepcopy(model)))
    return {name: getattr(costs, name) for name in COSTS}


def _next(left: Sequence[Step], now: dict[str, Any]) -> tuple[tuple[Step, ...], dict[str, Any], dict[str, int]]:
    """The first change that gives a model by itself, else the first two that do together, else all that are left."""
    fault: Exception | None = None
    for size in sorted({1, min(2, len(left)), len(left)}):
        for chosen in combinations(left, size):
            model = deepcopy(now)
            for _, make in chosen:
                make(model)
            try:
                return chosen, model, _costs(model)
            except Exception as error:  # halfway between two models anything may be wrong, in any part of it
                fault = error
    raise ArchlabError(f"diff: the second model can't be built: {fault}")


def _steps(one: Mapping[str, Any], other: Mapping[str, Any], path: str) -> Iterator[Step]:
    """The changes from one section to the other: key by key in a component, whole where its name is another."""
    for key in dict.fromkeys([*one, *other]):
        mine, yours = one.get(key, ABSENT_VALUE), other.get(key, ABSENT_VALUE)
        here = f"{path}.{key}"
        if mine == yours and type(mine) is type(yours):
            continue
        if isinstance(mine, Mapping) and isinstance(yours, Mapping) and mine.get("name") == yours.get("name"):
            yield from _steps(mine, yours, here)
        else:
            yield f"{here}: {_short(mine)} -> {_short(yours)}", _setter(here.split(".")[1:], yours)


def _setter(path: list[str], value: Any) -> Callable[[dict[str, Any]], None]:
    def make(model: dict[str, Any]) -> None:
        node = model
        for key in path[:-1]:
            node = node[key]
        if isinstance(value, str) and value == ABSENT_VALUE:
            node.pop(path[-1], None)
        else:
            node[path[-1]] = deepcopy(value)

    return make


def _short(value: Any) -> str:
    return str(value.get("name", "a section")) if isinstance(value, Mapping) else shown(value)


def _others(first: Run, second: Run) -> Iterator[str]:
    """What differs outside of the model, less what makes no other run; the seed is told."""
    one, other = ({"seed": run.seed, **dict(telling(run.config))} for run in (first, second))
    for path in dict.fromkeys([*one, *other]):
        mine, yours = one.get(path, ABSENT_VALUE), other.get(path, ABSENT_VALUE)
        if mine != yours and not belongs(path, ("model",)):
            yield f"{path}: {shown(mine)} -> {shown(yours)}"
    if first.corpus != second.corpus and None not in (first.corpus, second.corpus):
        yield f"data: {str(first.corpus)[:8]} -> {str(second.corpus)[:8]}"
