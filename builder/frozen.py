"""Dicts that can't be changed: other people's arguments, as they were loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn


class FrozenDict(dict[str, Any]):
    """A dict that can't be changed, nor what is in it."""

    def __init__(self, content: Mapping[str, Any]):
        super().__init__({key: _frozen(value) for key, value in content.items()})

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a spec can't be changed after load; compose it anew with other overrides")

    __setitem__ = __delitem__ = update = pop = popitem = clear = setdefault = __ior__ = _refuse  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return FrozenDict, (dict(self),)


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return FrozenDict(value)
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value
