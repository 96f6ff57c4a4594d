"""Which class judges what stands at a path of a config, and what may stand there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from . import registry
from .component import Room


def field_at(schema: type[BaseModel], config: Mapping[str, Any], steps: list[str]) -> FieldInfo | None:
    """The field that a path leads to; None where it leads into a value, such as an entry of a list."""
    here = class_at(schema, config, steps[:-1])
    return here.model_fields.get(steps[-1]) if here and steps else None


def has(schema: type[BaseModel], config: Mapping[str, Any], section: Sequence[str], key: str) -> bool:
    """Whether the section at a path has a key."""
    here = class_at(schema, config, list(section))
    return here is not None and key in here.model_fields


def holds_slots(schema: type[BaseModel]) -> bool:
    """Whether what isn't a key of it is a slot."""
    return schema.model_config.get("extra") == "allow"


def class_at(schema: type[BaseModel], config: Any, path: list[str]) -> type[BaseModel] | None:
    """The pydantic class that judged the node at `path`, slots resolved by their `name`."""
    here: type[BaseModel] | None = schema
    depth = 0
    while here is not None and depth < len(path):
        step = path[depth]
        depth += 1 + named_slots(here, step)
        here = _child(here, step, value_at(config, path[:depth])) if depth <= len(path) else None
    return here


def named_slots(parent: type[BaseModel], key: str) -> bool:
    """Whether slots stand at a key of it, each under a name of the user's own."""
    field = parent.model_fields.get(key)
    return field is not None and get_origin(field.annotation) is dict and room_of(field) is not None


def _child(parent: type[BaseModel], key: str, node: Any) -> type[BaseModel] | None:
    field = parent.model_fields.get(key)
    annotation = field.annotation if field else None
    for section in getattr(annotation, "__args__", (annotation,)):  # a section, also where something else may stand
        if isinstance(section, type) and issubclass(section, BaseModel) and room_of(field) is None:
            return section
    room = room_of(field) if field else Room(*registry.LAYER_ROOMS)
    name = node.get("name", room.default) if isinstance(node, Mapping) and room is not None else None
    try:
        return room.config_class(name) if room is not None and isinstance(name, str) else None
    except (registry.UnknownName, ValidationError):  # the second where a slot takes some of its room alone
        return None


def room_of(field: Any) -> Room | None:
    """The room of a field annotated as a slot, also as `slot | None`."""
    marks = [*field.metadata, *(m for arg in getattr(field.annotation, "__args__", ()) for m in _metadata(arg))]
    return next((mark for mark in marks if isinstance(mark, Room)), None)


def _metadata(annotation: Any) -> tuple[Any, ...]:
    return getattr(annotation, "__metadata__", ())


def value_at(config: Any, path: list[str]) -> Any:
    """What stands at a path; None where nothing does."""
    node = config
    for step in path:
        if isinstance(node, list | tuple):
            node = node[int(step)] if step.isdecimal() and int(step) < len(node) else None
        else:
            node = node.get(step) if isinstance(node, Mapping) else None
    return node
