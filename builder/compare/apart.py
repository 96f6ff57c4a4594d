"""What sets configurations apart, in words: short keys, values in one line, and whole components in one cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ABSENT_VALUE = "-"
"""Stands where a config has no such key."""

_NAMES = ("._target_", ".name")
"""How the key ends that says what a slot holds: a class by its import path, or a component."""

Values = Mapping[str, Any]
"""The values of one configuration by their paths."""


@dataclass(frozen=True)
class Columns:
    """The keys in which configurations differ, as columns.

    A slot that holds different components, or classes, is one column: their names, with what those of one name differ
    in in brackets, `gqa(n_kv_heads=2)`. A knob that all of them have is a column of its own where it varies.

    paths       the key of each column, by the column's name
    inside      the keys that stand in brackets, by a slot's key and a component's name
    fixed       what all components of a name have alike, and others don't: `attention=mla: kv_rank=32, d_rope=16`
    """

    paths: Mapping[str, str]
    inside: Mapping[tuple[str, str], Sequence[str]]
    fixed: Sequence[str]

    @classmethod
    def of(cls, keys: Mapping[str, str], items: Sequence[Values]) -> Columns:
        """The columns of these paths with their short names, by the configurations that differ in them."""
        slots = {_slot(path): path for end in reversed(_NAMES) for path in keys if path.endswith(end)}
        paths: dict[str, str] = {}
        inside: dict[tuple[str, str], list[str]] = {}
        fixed: list[str] = []
        for path, short in keys.items():
            slot = min((slot for slot in slots if belongs(path, (slot,))), key=len, default=None)
            if slot is None:
                paths[short] = path
            if slot is None or path != slots[slot]:
                continue
            name = _slot(short)
            name = slot if name in keys.values() else name
            paths[name] = path
            knobs = [key for key in keys if key != path and belongs(key, (slot,))]
            kinds = {kind: [item for item in items if _said(item, path) == kind] for kind in _kinds(items, path)}
            apart = {kind: [key for key in knobs if len(_kinds(rows, key)) > 1] for kind, rows in kinds.items()}
            own = [key for key in knobs if any(key in each for each in apart.values())]
            own = [key for key in own if ABSENT_VALUE not in _kinds(items, key)]
            paths |= {keys[key]: key for key in own}
            for kind, rows in kinds.items():
                inside[path, kind] = [key for key in apart[kind] if key not in own]
                alike = _knobs(path, rows[0], [key for key in knobs if key not in (*apart[kind], *own)])
                fixed += [f"{name}={kind}: {alike}"] * bool(alike)
        return cls(paths, inside, fixed)

    def cells(self, item: Values) -> list[str]:
        """What a configuration has in each column."""
        return [self._cell(item, path) for path in self.paths.values()]

    def label(self, item: Values) -> str:
        """What a configuration has, in one line."""
        cells = zip(self.paths, self.cells(item), strict=True)
        return " ".join(f"{name}={cell}" for name, cell in cells if cell != ABSENT_VALUE)

    def _cell(self, item: Values, path: str) -> str:
        said = _said(item, path)
        knobs = _knobs(path, item, self.inside.get((path, said), ()))
        return f"{said}({knobs})" if knobs else said


def belongs(path: str, sections: Iterable[str]) -> bool:
    """Whether a path is one of the sections, or lies in one."""
    return any(path == section or path.startswith(f"{section}.") for section in sections)


def shown(value: Any) -> str:
    """A config value as YAML writes it in one line."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, list | tuple):
        return f"[{', '.join(shown(entry) for entry in value)}]"
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value)


def shortened(paths: Sequence[str]) -> dict[str, str]:
    """Each path's shortest ending that no other one of them has."""
    names: dict[str, str] = {}
    for path in paths:
        parts = path.split(".")
        endings = [".".join(parts[start:]) for start in range(len(parts) - 1, -1, -1)]
        if f".{parts[-1]}" in _NAMES:  # says nothing without what it names
            endings = endings[1:] or endings
        names[path] = next(
            (end for end in endings if sum(f".{other}".endswith(f".{end}") for other in paths) == 1), path
        )
    return names


def _slot(path: str) -> str:
    """The slot whose component a path names; any other path as it is."""
    return next((path.removesuffix(end) for end in _NAMES if path.endswith(end)), path)


def _said(item: Values, path: str) -> str:
    said = shown(item.get(path, ABSENT_VALUE))
    return said.rpartition(".")[2] if path.endswith(_NAMES[0]) else said  # a class without its package


def _kinds(items: Sequence[Values], path: str) -> list[str]:
    """What configurations have at a path, each value once."""
    return list(dict.fromkeys(_said(item, path) for item in items))


def _knobs(path: str, item: Values, keys: Iterable[str]) -> str:
    """The knobs of a component that a configuration has."""
    told = {_slot(key.removeprefix(f"{_slot(path)}.")): _said(item, key) for key in keys}
    return ", ".join(f"{knob}={value}" for knob, value in told.items() if value != ABSENT_VALUE)
