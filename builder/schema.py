"""The JSON Schema of a whole config (draft 2020-12), made from the classes that judge it: for editors, and completion.

Each section and each component is an entry of `$defs`, and a slot one of the components of its rooms, told apart by
`name`. What spans several keys is left to `load`, and what spans components to the checklist.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from inspect import cleandoc
from typing import Any

from pydantic.json_schema import models_json_schema

from . import registry
from .component import SLOT, UNNAMED, Config
from .spec import RunSpec

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_DEFS = "#/$defs/"
_KEY = re.compile(r"(?P<keys>\w+(?:, \w+)*)  +(?P<said>\S.*)")
_ELSEWHERE = {
    "description": "a component of one's own, by its import path pkg.module:Class",
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": r"^[\w.]+:\w+$"}},
    "required": ["name"],
}
_OPEN = {"type": "string", "pattern": r"\$\{.+\}|^\?\?\?$"}
"""What may stand for any value in a YAML of conf/: an interpolation, or the mark of a value that must be given."""

_CLOSED = ("integer", "number", "boolean", "array")
"""The types of values that an interpolation can stand for."""

_HYDRAS = {"defaults": {"type": "array"}, "hydra": {"type": "object"}}
"""What a YAML of conf/ holds that is for Hydra."""


def json_schema(partial: bool = False) -> dict[str, Any]:
    """The schema of a frozen config; with `partial` that of a YAML with `# @package _global_`, which states some of the
    keys, and may hold a defaults list and interpolations."""
    every = ((room, name) for room in registry.ROOMS for name in registry.names(room))
    configs: dict[str, type[Config]] = {f"{room}.{name}": registry.find(room, name).Config for room, name in every}
    places, content = models_json_schema([(each, "validation") for each in (RunSpec, *configs.values())])
    ours = {places[config, "validation"]["$ref"]: f"{_DEFS}{key}" for key, config in configs.items()}
    defs: dict[str, Any] = {}
    for name, schema in content["$defs"].items():
        key = ours.get(f"{_DEFS}{name}", f"{_DEFS}{name}").removeprefix(_DEFS)
        _describe(schema, configs.get(key))
        if key in configs:
            schema["properties"]["name"] = {"const": key.partition(".")[2]}
            schema["required"] = ["name", *(knob for knob in schema.get("required", ()) if knob != "name")]
        defs[key] = _made(schema, ours, partial)
    for key in [key for key in configs if f'"{_DEFS}{key}.{UNNAMED}"' in json.dumps(defs)]:
        needed = [knob for knob in defs[key].get("required", ()) if knob != "name"]
        defs[f"{key}.{UNNAMED}"] = defs[key] | ({} if partial else {"required": needed})
    root = defs.pop(RunSpec.__name__)
    if partial:
        root["properties"] |= _HYDRAS
    return {"$schema": DRAFT, "title": "A config of Archlab", **root, "$defs": dict(sorted(defs.items()))}


def _made(node: dict[str, Any], ours: Mapping[str, str], partial: bool) -> dict[str, Any]:
    """A part of pydantic's schema as it stands in ours: slots written out, references by our names."""
    made = {key: value for key, value in node.items() if key not in (SLOT, UNNAMED, "title", *["required"] * partial)}
    for key, value in made.items():
        if key == "properties":
            made[key] = {name: _made(each, ours, partial) for name, each in value.items()}
        elif key in ("anyOf", "oneOf", "prefixItems"):
            made[key] = [_made(each, ours, partial) for each in value]
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            made[key] = _made(value, ours, partial)
        elif key == "$ref":
            made[key] = ours.get(value, value)
    if SLOT in node:
        made["anyOf"] = [*({"$ref": f"{_DEFS}{key}"} for key in node[SLOT]), _ELSEWHERE]
        if UNNAMED in node:
            made["anyOf"].append({"$ref": f"{_DEFS}{node[UNNAMED]}.{UNNAMED}"})
    closed = SLOT in node or "enum" in node or node.get("type") in _CLOSED
    return {"anyOf": [made, _OPEN]} if partial and closed else made


def _describe(schema: dict[str, Any], config: type[Config] | None) -> None:
    """Gives each key what the docstrings say of it, and the whole the first words of its own."""
    own = schema.pop("description", "")
    texts = [own] if config is None else [cleandoc(each.__doc__ or "") for each in config.__mro__ if each is not Config]
    said: dict[str, str] = {}
    for text in texts:
        said = _keys(text) | said
    for key, knob in schema["properties"].items():
        if key in said:
            knob["description"] = said[key]
    whole = own if config is None else cleandoc(config.component.__doc__ or "")
    if whole:
        schema["description"] = whole.partition("\n\n")[0].replace("\n", " ")


def _keys(text: str) -> dict[str, str]:
    """What a docstring says of keys, in lines such as `d_head, d_value      None: d_model / n_heads`."""
    said: dict[str, str] = {}
    told: list[str] = []
    for line in text.splitlines():
        if found := _KEY.fullmatch(line):
            told = found["keys"].split(", ")
            said |= dict.fromkeys(told, found["said"])
        elif told and line.startswith(" "):
            said |= {key: f"{said[key]} {line.strip()}" for key in told}
        else:
            told = []
    return said
