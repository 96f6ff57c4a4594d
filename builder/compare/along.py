"""A metric along one key of the config: a line for each setting of all others, such as accuracy over task size."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from builder.errors import ArchlabError, nearest

from .apart import ABSENT_VALUE, shown
from .comparison import Comparison, Row
from .statistics import Mean


@dataclass(frozen=True)
class Point:
    """One configuration: the value of the key, and its number over seeds."""

    x: Any
    mean: Mean


@dataclass(frozen=True)
class Line:
    """The configurations that differ in the key alone, in its order."""

    label: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Along:
    """The lines over one key, the highest at its end first or, where less is better, the lowest."""

    path: str
    metric: str
    lines: tuple[Line, ...]

    @property
    def numeric(self) -> bool:
        """Whether the values of the key are numbers."""
        return all(_is_number(point.x) for line in self.lines for point in line.points)

    def to_dict(self) -> dict[str, Any]:
        """The same in plain Python."""
        return asdict(self)


def along(comparison: Comparison, path: str) -> Along:
    """The lines over a key in which configurations differ; raises ArchlabError where none do, or none has a number."""
    rows = [row for row in comparison.rows if row.mean is not None]
    keys = {short: full for full, short in comparison.keys.items()} | {full: full for full in comparison.keys}
    if path not in keys:
        close = nearest(path, keys)
        differ = f"they differ in {', '.join(comparison.keys) or 'nothing'}"
        hint = f"did you mean {close}?" if close else differ
        raise ArchlabError(f"along: found {path!r}, in which the configurations don't differ; {hint}")
    if not rows:
        raise ArchlabError(f"along: no configuration has a number for {comparison.metric}")
    path = keys[path]
    others = _others(rows, path)
    held: dict[str, list[Row]] = {}
    for row in rows:
        held.setdefault(_digest(row.configuration.differing, others), []).append(row)
    names = _telling([members[0].configuration.differing for members in held.values()], others)
    lines = [
        Line(_label(members[0], names, comparison.keys), tuple(_points(members, path))) for members in held.values()
    ]
    lines.sort(key=lambda line: line.points[-1].mean.mean, reverse=comparison.higher)
    return Along(path, comparison.metric, tuple(lines))


def _others(rows: Sequence[Row], path: str) -> list[str]:
    """The keys that set lines apart: those that don't follow from the value of the key itself."""
    told = [row.configuration.differing for row in rows]
    kept = []
    for key in dict.fromkeys(key for one in told for key in one if key != path):
        values: dict[str, set[str]] = {}
        for one in told:
            values.setdefault(_digest(one, [path]), set()).add(_digest(one, [key]))
        if any(len(found) > 1 for found in values.values()):
            kept.append(key)
    return kept


def _telling(lines: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> Sequence[str]:
    """The fewest keys by which lines are told apart, the first of equals; of more than two, all."""
    for count in (0, 1, 2):
        for some in combinations(keys, count):
            if len({_digest(line, some) for line in lines}) == len(lines):
                return some
    return keys


def _label(row: Row, names: Sequence[str], short: Mapping[str, str]) -> str:
    told = row.configuration.differing
    if len(names) == 1:
        return shown(told.get(names[0], ABSENT_VALUE))
    there = [name for name in names if told.get(name, ABSENT_VALUE) != ABSENT_VALUE]
    return " ".join(f"{short.get(name, name)}={shown(told[name])}" for name in there) or "all"


def _points(rows: Sequence[Row], path: str) -> list[Point]:
    points = [Point(row.configuration.differing[path], row.mean) for row in rows if row.mean is not None]
    return sorted(points, key=lambda point: (not _is_number(point.x), point.x if _is_number(point.x) else str(point.x)))


def _digest(told: Mapping[str, Any], keys: Sequence[str]) -> str:
    return json.dumps([told.get(key) for key in keys], sort_keys=True, default=str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
