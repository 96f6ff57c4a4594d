"""Rooms and names: which class stands behind a name, its file imported only when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from .errors import nearest

# room -> its folder below builder/. The folder's __init__.py states the room's contract.
ROOMS = {
    "attention": "components/attention",
    "ssm": "components/ssm",
    "recurrent": "components/recurrent",
    "ffn": "components/ffn",
    "norm": "components/norm",
    "position": "components/position",
    "scaling": "components/scaling",
    "block": "components/block",
    "residual": "components/residual",
    "init": "components/init",
    "head": "components/head",
    "pooling": "components/pooling",
    "router": "components/router",
    "kernel": "components/kernel",
    "objective": "training/objective",
    "optimizer": "training/optimizer",
    "schedule": "training/schedule",
    "data": "data/source",
    "tokenizer": "data/tokenizer",
}
# The rooms whose components a layer pattern may name.
LAYER_ROOMS = ("attention", "ssm", "recurrent", "ffn")

_HOME = Path(__file__).parent
_known: dict[tuple[str, str], type] = {}
C = TypeVar("C", bound=type)


class UnknownName(ValueError):
    """A name that no component of the room carries; `nearest` is the closest one that does."""

    def __init__(self, rooms: tuple[str, ...], name: str, reason: str = ""):
        valid = [n for room in rooms for n in names(room)]
        self.valid, self.nearest = valid, nearest(name, valid)
        super().__init__(reason or f"no component is called {name!r} in {' or '.join(rooms)}")


def register(room: str, name: str) -> Callable[[C], C]:
    """Enters a class under `name` in `room`: the decorator on every component.

    Raises ValueError for an unknown room, or when another class already carries the name there.
    """
    if room not in ROOMS:
        raise ValueError(f"register({room!r}, {name!r}): the rooms are {', '.join(ROOMS)}")

    def enter(cls: C) -> C:
        other = _known.get((room, name))
        if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(
                f"register({room!r}, {name!r}): {cls.__module__}.{cls.__qualname__} would hide "
                f"{other.__module__}.{other.__qualname__}; choose another name"
            )
        if other is None and name in _files(room) and cls.__module__ != _module(room, name):
            raise ValueError(f"register({room!r}, {name!r}): the name belongs to {_module(room, name)}")
        _known[room, name] = cls
        return cls

    return enter


def names(room: str) -> list[str]:
    """The names of a room, sorted; nothing is imported to list them."""
    return sorted(set(_files(room)) | {name for place, name in _known if place == room})


def find(rooms: str | tuple[str, ...], name: str) -> type[Any]:
    """The class called `name` in one of `rooms`, or the one at an import path `pkg.module:Class`.

    Raises UnknownName when there is none.
    """
    rooms = (rooms,) if isinstance(rooms, str) else rooms
    if ":" in name:
        return _imported(rooms, name)
    for room in rooms:
        if (room, name) not in _known and name in _files(room):
            importlib.import_module(_module(room, name))
        if (room, name) in _known:
            return _known[room, name]
    raise UnknownName(rooms, name)


def _imported(rooms: tuple[str, ...], path: str) -> type:
    module, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:  # the last two for "" and relative paths
        raise UnknownName(rooms, path, f"{path!r} can't be imported: {error}") from error
    contracts = tuple(base for room in rooms for base in _contracts(room))
    if not (isinstance(found, type) and issubclass(found, contracts)):
        bases = " or ".join(f"{base.__module__}.{base.__name__}" for base in contracts)
        raise UnknownName(rooms, path, f"{path!r} is no component of {' or '.join(rooms)}: it must derive from {bases}")
    return found


def _contracts(room: str) -> list[type]:
    """The classes that a room's `__init__.py` defines for its components to derive from."""
    home = importlib.import_module(f"{__package__}.{ROOMS[room].replace('/', '.')}")
    classes = (value for value in vars(home).values() if isinstance(value, type) and hasattr(value, "Config"))
    return [value for value in classes if value.__module__ == home.__name__]


def _module(room: str, name: str) -> str:
    return f"{__package__}.{ROOMS[room].replace('/', '.')}.{name}"


def _files(room: str) -> list[str]:
    return [file.stem for file in (_HOME / ROOMS[room]).glob("*.py") if not file.stem.startswith("_")]
