"""Every key that a config may hold, and what may stand there, read off the JSON Schema, which is kept in the cache."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from builder.cache import cache_folder
from builder.compose import ROOT
from builder.whole import write_whole

_DEFS = "#/$defs/"


def schema() -> dict[str, Any]:
    """The JSON Schema of a config, made anew only where the code has changed since, for that imports all of it."""
    changed = [file.stat().st_mtime_ns for file in (ROOT / "builder").rglob("*.py")]
    stamp = [str(ROOT), len(changed), max(changed)]
    kept = cache_folder() / "schema.json"
    with suppress(OSError, ValueError, KeyError):
        found = json.loads(kept.read_text(encoding="utf-8"))
        if found["stamp"] == stamp:
            return found["schema"]
    from builder.schema import json_schema

    made = json_schema()
    with suppress(OSError):  # a folder that can't be written to only makes it slow
        write_whole(kept, json.dumps({"stamp": stamp, "schema": made}))
    return made


class Knobs:
    """The schema at one key of a config, where `value` stands by now: every object and value that may be there."""

    def __init__(self, root: Mapping[str, Any], parts: Iterable[Mapping[str, Any]], value: Any):
        self._root, self._value = root, value
        self._every = [part for each in parts for part in self._flat(each)]

    @classmethod
    def of(cls, config: dict[str, Any]) -> Knobs:
        """Those of a whole config; of one that describes no run, the keys that it states."""
        root = schema() if "model" in config else {}
        return cls(root, [root], config)

    def _flat(self, part: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """The alternatives of a schema, those behind references too."""
        if "$ref" in part:
            yield from self._flat(self._root["$defs"][part["$ref"].removeprefix(_DEFS)])
        elif "anyOf" in part:
            yield from (inner for each in part["anyOf"] for inner in self._flat(each))
        else:
            yield part

    @property
    def _chosen(self) -> list[Mapping[str, Any]]:
        """The alternatives, of components the one whose name stands there."""
        stated = self._value.get("name") if isinstance(self._value, Mapping) else None
        return [part for part in self._every if stated is None or _called(part) in (None, stated)]

    def names(self) -> list[str]:
        """The keys that may stand below."""
        stated = list(self._value) if isinstance(self._value, Mapping) else []
        return sorted({*map(str, stated), *(key for part in self._chosen for key in part.get("properties", {}))})

    def below(self, key: str) -> Knobs:
        """Those at one of the keys."""
        value = self._value.get(key) if isinstance(self._value, Mapping) else None
        parts = [
            part.get("properties", {}).get(key) or part.get("additionalProperties")
            for part in (self._every if key == "name" else self._chosen)  # which tells them apart
        ]
        return Knobs(self._root, [part for part in parts if isinstance(part, Mapping)], value)

    @property
    def has_keys(self) -> bool:
        """Whether it is a section or a slot."""
        return isinstance(self._value, Mapping) or any("properties" in part for part in self._every)

    def values(self) -> list[str]:
        """What may stand there, as far as it can be listed: choices, true and false, null, names of components."""
        found: list[Any] = []
        for part in self._every:
            found += part.get("enum", [part["const"]] if "const" in part else [])
            found += {"boolean": [True, False], "null": [None]}.get(str(part.get("type")), [])
        return sorted({json.dumps(each).strip('"') for each in found})


def _called(part: Mapping[str, Any]) -> str | None:
    """The name of the component that a schema is of, None where it is of none."""
    return part.get("properties", {}).get("name", {}).get("const")
