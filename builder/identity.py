"""What sets one config apart from another: its values that aren't defaults, as one short number."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

from pydantic import BaseModel

_ALWAYS = ("name", "version")


def fingerprint(config: BaseModel, without: Iterable[str] = ()) -> str:
    """The first 16 digits of a sha256 over the config, less some of its sections and keys, by their paths.

    A knob at its default isn't in it, so that one which a later version adds makes no run another.
    """
    told = _told(config)
    for path in without:
        *parents, key = path.split(".")
        reduce(lambda node, parent: node.get(parent, {}), parents, told).pop(key, None)
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def _told(node: Any) -> Any:
    """A config as plain Python, without what stands at its default."""
    if isinstance(node, BaseModel):
        return {key: _told(value) for key, value in node if key in _ALWAYS or not _is_default(node, key, value)}
    if isinstance(node, Mapping):
        return {key: _told(value) for key, value in node.items()}
    return [_told(value) for value in node] if isinstance(node, list | tuple) else node


def _is_default(config: BaseModel, key: str, value: Any) -> bool:
    field = type(config).model_fields.get(key)
    if field is None or field.is_required():
        return False
    default = field.get_default(call_default_factory=True, validated_data={})
    return value == default and type(value) is type(default)
