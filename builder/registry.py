"""Rooms and names: which class stands behind a name, its file imported only when it is asked for."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from difflib import SequenceMatcher, get_close_matches
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

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
    """A name that no component of the room carries.

    `valid` are the names that may stand there, for an import path those of the classes that its module defines for the
    room; `nearest` is the one that is meant, and `remedy` what to do where no other name is the answer.
    """

    def __init__(self, rooms: tuple[str, ...], name: str, reason: str = "", remedy: str = ""):
        likely = [] if remedy else meant(rooms, name)
        self.valid = likely if ":" in name else [n for room in rooms for n in names(room)]
        self.nearest, self.remedy = next(iter(likely), None), remedy
        super().__init__(reason or f"no component is called {name!r} in {' or '.join(rooms)}")


def register(room: str, name: str) -> Callable[[C], C]:
    """Enters a class under `name` in `room`: the decorator on every component.

    Raises ValueError for an unknown room, for a class that doesn't derive from the room's own, and when another class
    already carries the name there.
    """
    if room not in ROOMS:
        raise ValueError(f"register({room!r}, {name!r}): the rooms are {', '.join(ROOMS)}")

    def enter(cls: C) -> C:
        if wrong := _stranger((room,), cls):
            raise ValueError(f"register({room!r}, {name!r}): {cls.__module__}.{cls.__qualname__} {wrong}")
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


def is_name(room: str, word: str) -> bool:
    """Whether a word may choose a component of a room: one of its names, or an import path."""
    return ":" in word or word in names(room)


def find(rooms: str | tuple[str, ...], name: str) -> type[Any]:
    """The class called `name` in one of `rooms`, or the one at an import path `pkg.module:Class`.

    Raises UnknownName when there is none.
    """
    rooms = (rooms,) if isinstance(rooms, str) else rooms
    if ":" in name:
        return _imported(rooms, name)
    for room in rooms:
        if (room, name) not in _known and name in _files(room):
            _module_at(rooms, name, _module(room, name))
            if (room, name) not in _known:
                reason = f"{_module(room, name)} enters no class under this name"
                raise UnknownName(rooms, name, reason, f'write @register("{room}", "{name}") on its class')
        if (room, name) in _known:
            return _known[room, name]
    raise UnknownName(rooms, name)


def _imported(rooms: tuple[str, ...], path: str) -> type:
    module, _, attribute = path.partition(":")
    found = getattr(_module_at(rooms, path, module), attribute, None)
    if found is None:
        raise UnknownName(rooms, path, f"{path!r} can't be imported: module {module!r} has no attribute {attribute!r}")
    if wrong := _stranger(rooms, found):
        raise UnknownName(rooms, path, f"{path!r} {wrong}")
    return found


def _module_at(rooms: tuple[str, ...], name: str, module: str) -> ModuleType:
    """The module that `name` asks for; raises UnknownName with what stopped its import, whatever that is."""
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:  # of somebody's own code, which may raise anything
        remedy = f"mend the module; python -c 'import {module}' shows where it stops"
        if not _exists(module):
            remedy = "name=pkg.module:Class, of a module in this folder, on PYTHONPATH or installed"
        raise UnknownName(rooms, name, f"{name!r} can't be imported: {_told(error)}", remedy) from error


def _exists(module: str) -> bool:
    """Whether there is a module of that name, which may be one that can't be imported."""
    try:
        return find_spec(module) is not None
    except (ValueError, ImportError):  # "" and relative names; a parent that isn't there
        return False
    except (Exception, SystemExit):  # a parent that can't be imported
        return True


def _told(error: BaseException) -> str:
    """What stopped an import, with the line where that happened."""
    if isinstance(error, ImportError):
        return str(error)
    said = (str(error).strip() or "no reason given").splitlines()[0]
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name == "<module>"]
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {said}{'' if isinstance(error, SyntaxError) else place}"


def meant(rooms: tuple[str, ...], word: str) -> list[str]:
    """What may be meant by a word that is no name: import paths of what its module defines, and names close to it; the
    most likely first."""
    paths = sorted(_offers(rooms, word), key=lambda path: -SequenceMatcher(None, word, path).ratio())
    close = get_close_matches(word, [name for room in rooms for name in names(room)], n=9, cutoff=0.5)
    return paths if ":" in word else paths + close


def _offers(rooms: tuple[str, ...], word: str) -> list[str]:
    """The import paths of the classes for these rooms that the module defines whose name a word is, or begins with."""
    for module in (word.partition(":")[0],) if ":" in word else (word, word.rpartition(".")[0]):
        if module.partition(".")[0] in sys.stdlib_module_names or not _exists(module):
            continue  # of the first kind some do a thing when they are imported
        try:
            there = vars(importlib.import_module(module))
        except (Exception, SystemExit):
            continue
        own = [key for key, value in there.items() if getattr(value, "__module__", "") == module and key[0] != "_"]
        if paths := [f"{module}:{key}" for key in own if not _stranger(rooms, there[key])]:
            return paths
    return []


def _stranger(rooms: tuple[str, ...], found: object) -> str:
    """What keeps `found` from being a component of these rooms; "" for nothing."""
    contracts = tuple(base for room in rooms for base in _contracts(room))
    if isinstance(found, type) and issubclass(found, contracts):
        return ""
    bases = " or ".join(dict.fromkeys(f"{base.__module__}.{base.__name__}" for base in contracts))
    return f"is no component of {' or '.join(rooms)}: it must derive from {bases}"


def _contracts(room: str) -> list[type]:
    """The classes that components of a room derive from: those with a Config that its `__init__.py` defines, or, where
    they are heirs of another room's, what they come from."""
    home = importlib.import_module(_home(room))
    classes = (value for value in vars(home).values() if isinstance(value, type) and hasattr(value, "Config"))
    homes = tuple(map(_home, ROOMS))
    own = (value.__mro__ for value in classes if value.__module__ == home.__name__)
    return list(dict.fromkeys([base for base in above if base.__module__ in homes][-1] for above in own))


def _home(room: str) -> str:
    return f"{__package__}.{ROOMS[room].replace('/', '.')}"


def _module(room: str, name: str) -> str:
    return f"{_home(room)}.{name}"


def _files(room: str) -> list[str]:
    return [file.stem for file in (_HOME / ROOMS[room]).glob("*.py") if not file.stem.startswith("_")]
