"""What to write in the place of a key that is refused: a fix that can be typed as it stands."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import yaml
from pydantic.fields import FieldInfo

from .errors import nearest

_KEY = re.compile(r"(?<![\w.{/~])([a-z_]\w*)=")
"""A key of a fix without a dot, such as `d_head=8`; not one that lies in a value."""
_HERE = "HERE"
"""What stands in a list for the value that is to be written there."""


def whole(fix: str, steps: Sequence[str], has: Callable[[Sequence[str], str], bool]) -> str:
    """`fix`, said of the key at `steps`, with the keys in it made paths: each is of the nearest section around that key
    that `has` it."""

    def placed(key: re.Match[str]) -> str:
        if list(steps[-1:]) == [key[1]]:  # the key itself, which may hold what names no section
            return ".".join((*steps[:-1], key[0]))
        around = (steps[:depth] for depth in range(len(steps) - 1, -1, -1))
        home = next((section for section in around if has(section, key[1])), ())
        return ".".join((*home, key[0]))

    return _KEY.sub(placed, fix)


def of_whole_list(fix: str, steps: Sequence[str], config: Any, field: Callable[[list[str]], FieldInfo | None]) -> str:
    """`fix`, said of the key at `steps`; where that lies in a list, which is set as one, it is the whole list."""
    node, depth = config, 0
    while isinstance(node, Mapping) and depth < len(steps):
        node, depth = node.get(steps[depth]), depth + 1
    path, inside = ".".join(steps), list(steps[depth:])
    if not isinstance(node, list | tuple) or not inside or not fix.startswith(f"{path}="):
        return fix
    home, value = ".".join(steps[:depth]), fix.removeprefix(f"{path}=")
    default = getattr(field(list(steps[:depth])), "default", None)
    if isinstance(default, list | tuple) and len(default) == len(node):  # right whatever else is wrong in it
        return f"{home}={_written(default)}"
    made = deepcopy(list(node))
    holder: Any = made
    for number, step in enumerate(inside, start=1):
        if isinstance(holder, list) and not step.isdigit():
            return fix  # said of all entries
        key: Any = int(step) if isinstance(holder, list) else step
        if number == len(inside):
            holder[key] = _HERE
        holder = holder[key]
    return f"{home}={_written(made).replace(_HERE, value)}"


def allowed(path: str, field: FieldInfo | None, given: object, kind: str, context: Mapping[str, Any]) -> str:
    """A value that may stand at `path`: the word that is meant, the default, or the bound; "" where none is known."""
    if kind == "literal_error":
        words = re.findall(r"'([^']+)'", context["expected"])
        word = nearest(str(given), words) or next(iter(words), None)
        return f"{path}={word}" if word else ""
    if field is not None and not field.is_required() and field.default_factory is None:
        return f"{path}={_written(field.default)}"
    least = context.get("ge", context["gt"] + 1 if "gt" in context else context.get("le"))
    return f"{path}={least}" if least is not None else f"{path}=..."


def _written(value: Any) -> str:
    """A default as it is typed on one line."""
    plain = value.model_dump(mode="json") if hasattr(value, "model_dump") else value
    plain = list(plain) if isinstance(plain, tuple) else plain
    text = yaml.safe_dump(plain, default_flow_style=True, sort_keys=False, width=10**6).removesuffix("\n...\n").strip()
    return text.replace(", ", ",")
