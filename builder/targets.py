"""Other people's classes by `_target_`: their arguments are checked by reading their source, without importing it."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
from collections.abc import Iterator, Mapping
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from .errors import Problem, nearest

SECTIONS = ("trainer", "logger", "callbacks")
_HOPS = 8  # re-exports followed before giving up
_PLAIN = {"int": int, "str": str, "bool": bool, "float": float}


def problems(config: Mapping[str, Any]) -> list[Problem]:
    """Every wrong argument of the nodes with a `_target_` in trainer, logger and callbacks."""
    return [problem for section in SECTIONS for problem in _walk(config.get(section), section)]


def instantiate(node: Mapping[str, Any], **given: Any) -> Any:
    """The object that a node with `_target_` describes; of `given`, known only at run time, what it takes by name."""
    module, _, name = node["_target_"].rpartition(".")
    target = getattr(importlib.import_module(module), name)
    taken = inspect.signature(target).parameters
    arguments = {key: value for key, value in node.items() if key != "_target_"}
    return target(**arguments, **{key: value for key, value in given.items() if key in taken})


def _walk(node: Any, path: str) -> Iterator[Problem]:
    if not isinstance(node, Mapping):
        return
    if "_target_" in node:
        yield from _node(node, path)
    elif path == "trainer":
        yield Problem(path, repr(node), "a trainer is {_target_: its class, its own arguments}", "trainer=auto")
    for key, child in node.items():
        yield from _walk(child, f"{path}.{key}")


def _node(node: Mapping[str, Any], path: str) -> Iterator[Problem]:
    target = node["_target_"]
    if not isinstance(target, str) or importlib.util.find_spec(target.split(".")[0]) is None:
        rule = "a class or function by its import path, of a package that is installed"
        yield Problem(f"{path}._target_", repr(target), rule)
        return
    signature = _signature(target)
    if signature is None:
        return  # can't be read from source; calling it will tell
    arguments, open_ended = signature
    for key, value in node.items():
        if key == "_target_":
            continue
        if key in arguments:
            yield from _typed(arguments[key], value, f"{path}.{key}")
        elif not open_ended:
            close = nearest(key, arguments)
            rule = f"{target} takes no such argument; it takes {', '.join(arguments)}"
            yield Problem(f"{path}.{key}", repr(value), rule, f"did you mean {path}.{close}?" if close else "")


def _typed(annotation: ast.expr | None, value: Any, path: str) -> Iterator[Problem]:
    kind = _kind(annotation)
    if kind is None or isinstance(value, Mapping):
        return
    try:
        TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError as error:
        yield Problem(path, repr(value), " or ".join(line["msg"] for line in error.errors()))


def _kind(annotation: ast.expr | None) -> Any:
    """The type that an annotation of plain words spells, e.g. `Optional[Union[int, float]]`; None for any other."""
    match annotation:
        case ast.Name(id=word) if word in _PLAIN:
            return _PLAIN[word]
        case ast.Constant(value=None):
            return type(None)
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return _union([_kind(inner), type(None)])
        case ast.Subscript(value=ast.Name(id="Union"), slice=ast.Tuple(elts=parts)):
            return _union([_kind(part) for part in parts])
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _union([_kind(left), _kind(right)])
    return None


def _union(kinds: list[Any]) -> Any:
    return None if None in kinds else reduce(or_, kinds)


@cache
def _signature(target: str) -> tuple[dict[str, ast.expr | None], bool] | None:
    """The arguments of a class or function with their annotations, and whether it takes any others; None: unknown."""
    module, _, name = target.rpartition(".")
    for _ in range(_HOPS):
        file = _file(module)
        found = _lookup(file, module, name) if file else None
        if isinstance(found, tuple):
            module, name = found
        elif isinstance(found, ast.ClassDef):
            init = next((n for n in found.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
            return _arguments(init, skip=1) if init else None
        else:
            return _arguments(found, skip=0) if found else None
    return None


def _arguments(function: ast.FunctionDef, skip: int) -> tuple[dict[str, ast.expr | None], bool]:
    given = [*function.args.posonlyargs, *function.args.args][skip:] + function.args.kwonlyargs
    return {argument.arg: argument.annotation for argument in given}, function.args.kwarg is not None


def _lookup(file: Path, module: str, name: str) -> ast.ClassDef | ast.FunctionDef | tuple[str, str] | None:
    """The definition of `name` in a file, or the (module, name) it is imported from."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    parent = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                    return ".".join([*parent, *([node.module] if node.module else [])]), alias.name
    return None


@cache
def _file(module: str) -> Path | None:
    """The source of a module; only its top package is looked up, nothing is imported."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    home = next(iter(spec.submodule_search_locations or ()), None) if spec else None
    if home is None:
        return Path(spec.origin) if spec and spec.origin and not rest else None
    base = Path(home, *rest)
    return next((file for file in (base / "__init__.py", base.with_suffix(".py")) if file.is_file()), None)
