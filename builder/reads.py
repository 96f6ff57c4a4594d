"""Which keys of a config something reads while it runs: what none of them reads has no effect."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel

from .component import Config
from .section import Section

_WHOLE = ("__dict__", "model_dump", "model_dump_json")
"""What gives all fields of a section at once."""
_COPYING = ("model_copy", "__copy__", "__deepcopy__", "copy", "__eq__", "__hash__")
"""Who asks for them and reads nothing of it."""


@contextmanager
def reading(*roots: tuple[str, BaseModel]) -> Iterator[set[str]]:
    """The paths of the fields, below the given (path, section), that are read until it is left.

    A copy of a section with other values counts as the section. What copies or compares a section reads nothing of it,
    and what writes it out reads all.
    """
    places: dict[int, str] = {}
    kinds: dict[type, list[str]] = {}
    for path, root in roots:
        for place, node in sections(root, path):
            places[id(node)] = place
            kinds.setdefault(type(node), []).append(place)
    read: set[str] = set()

    def noted(node: Any, name: str) -> Any:
        kind = type(node)
        whole = name in _WHOLE and sys._getframe(1).f_code.co_name not in _COPYING
        if kind in kinds and (whole or name in kind.model_fields):
            known = places.get(id(node))
            names = kind.model_fields if whole else (name,)
            read.update(f"{place}.{each}" for place in ([known] if known else kinds[kind]) for each in names)
        return object.__getattribute__(node, name)

    watched = (Config, Section)
    for base in watched:
        base.__getattribute__ = noted  # type: ignore[method-assign]
    try:
        yield read
    finally:
        for base in watched:
            del base.__getattribute__


def sections(root: BaseModel, path: str) -> Iterator[tuple[str, BaseModel]]:
    """Every section below one, itself first, with its path."""
    yield path, root
    for key, value in root:
        below = f"{path}.{key}" if path else key
        for place, node in _held(value, below):
            yield from sections(node, place)


def _held(value: Any, path: str) -> Iterator[tuple[str, BaseModel]]:
    if isinstance(value, BaseModel):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _held(inner, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _held(inner, f"{path}.{index}")
