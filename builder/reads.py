"""Which keys of a config something reads while it runs: what none of them reads has no effect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel

from .component import Config
from .section import Section


@contextmanager
def reading(*roots: tuple[str, BaseModel]) -> Iterator[set[str]]:
    """The paths of the fields, below the given (path, section), that are read until it is left.

    A copy of a section with other values counts as the section. What writes a section out, compares or copies it reads
    nothing of it.
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
        if name in kind.model_fields and kind in kinds:
            known = places.get(id(node))
            read.update(f"{place}.{name}" for place in ([known] if known else kinds[kind]))
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
