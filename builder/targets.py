"""Other people's classes by `_target_`: their arguments are checked by reading their source, without importing it."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from .errors import Problem, nearest, shown

GIVEN = {"folder", "spec", "axes", "summary"}
"""Arguments that a run passes to loggers that take them."""

SECTIONS = ("trainer", "logger", "callbacks")
_HOPS = 8  # re-exports followed before giving up
_PLAIN = {"int": int, "str": str, "bool": bool, "float": float}


def problems(config: Mapping[str, Any]) -> list[Problem]:
    """Every wrong target and argument in trainer, logger and callbacks."""
    return [problem for section in SECTIONS for problem in _section(config.get(section), section)]


def instantiate(node: Mapping[str, Any], **given: Any) -> Any:
    """The object that a node with `_target_` describes, nodes inside it first; of `given`, known only at run time, what
    it takes by name."""
    module, _, name = node["_target_"].rpartition(".")
    target = getattr(importlib.import_module(module), name)
    taken = inspect.signature(target).parameters
    arguments = {key: _made(value) for key, value in node.items() if key != "_target_"}
    return target(**arguments, **{key: value for key, value in given.items() if key in taken})


def _made(value: Any) -> Any:
    if isinstance(value, Mapping):
        return instantiate(value) if "_target_" in value else {key: _made(child) for key, child in value.items()}
    return [_made(child) for child in value] if isinstance(value, list | tuple) else value


def _section(node: Any, section: str) -> Iterator[Problem]:
    """The problems of a section: the trainer is one node, the other sections hold nodes by name."""
    nodes = node if isinstance(node, Mapping) and section != "trainer" else {"": node}
    for name, child in nodes.items():
        path = f"{section}.{name}" if name else section
        if isinstance(child, Mapping) and "_target_" not in child:
            close = nearest(name, nodes.keys() - {name})
            fix = f"did you mean {section}.{close}?" if close else f"{path}._target_=..." if name else "trainer=auto"
            yield Problem(path, repr(child), "{_target_: a class, its own arguments}", fix)
        yield from _walk(child, path)


def _walk(node: Any, path: str) -> Iterator[Problem]:
    if isinstance(node, Mapping):
        if "_target_" in node:
            yield from _node(node, path)
        for key, child in node.items():
            yield from _walk(child, f"{path}.{key}")
    elif isinstance(node, list):
        for index, child in enumerate(node):
            yield from _walk(child, f"{path}.{index}")


def _node(node: Mapping[str, Any], path: str) -> Iterator[Problem]:
    target = node["_target_"]
    rule = "a class or function by its import path, of a package that is installed"
    if not isinstance(target, str) or not re.fullmatch(r"\w+(\.\w+)+", target) or not _installed(target):
        yield Problem(f"{path}._target_", shown(target), rule)
        return
    try:
        signature = _signature(target)
    except _Missing as error:
        fix = f"did you mean {error.nearest}?" if error.nearest else ""
        yield Problem(f"{path}._target_", shown(target), f"{rule}; {error}", fix)
        return
    if signature is None:
        return  # can't be read from source; calling it will tell
    arguments, open_ended = signature
    for key, value in node.items():
        if key == "_target_":
            continue
        if key in GIVEN and key in arguments:
            yield Problem(f"{path}.{key}", shown(value), "the run gives this itself", f"~{path}.{key}")
            continue
        if key in arguments:
            yield from _typed(arguments[key], value, f"{path}.{key}")
        elif not open_ended:
            close = nearest(key, arguments)
            free = ", ".join(word for word in arguments if word not in GIVEN)
            taken = f"{target} takes no such argument; it takes {free}"
            yield Problem(
                f"{path}.{key}",
                shown(value),
                taken,
                f"did you mean {path}.{close}?" if close else f"leave {path}.{key} out",
            )


def _typed(annotation: ast.expr | None, value: Any, path: str) -> Iterator[Problem]:
    kind = _kind(annotation)
    if kind is None or isinstance(value, Mapping):
        return
    try:
        TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError as error:
        rules = (line["msg"].replace("Input should be ", "must be ") for line in error.errors())
        yield Problem(path, shown(value), " or ".join(rules), f"leave {path} out for the usual")


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
        case ast.Subscript(value=ast.Name(id="Literal"), slice=words):
            return Literal[ast.literal_eval(words)]  # type: ignore[valid-type]
        case ast.Subscript(value=ast.Name(id="list"), slice=inner):
            kind = _kind(inner)
            return None if kind is None else list[kind]
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _union([_kind(left), _kind(right)])
    return None


def _union(kinds: list[Any]) -> Any:
    return None if None in kinds else reduce(or_, kinds)


class _Missing(LookupError):
    """A target that its package doesn't have; `nearest` is the one most like it that it has."""

    def __init__(self, message: str, nearest: str | None = None):
        super().__init__(message)
        self.nearest = nearest


def _installed(target: str) -> bool:
    return importlib.util.find_spec(target.partition(".")[0]) is not None


@cache
def _signature(target: str) -> tuple[dict[str, ast.expr | None], bool] | None:
    """The arguments of a class or function with their annotations, and whether it takes any others; None: unknown.

    Raises _Missing when the module that `target` names, or its name in there, doesn't exist.
    """
    module, _, name = target.rpartition(".")
    for hop in range(_HOPS):
        try:
            file = _file(module)
            found = _lookup(file, module, name) if file else None
        except _Missing:
            if hop == 0:
                raise
            return None  # re-exported in a way that can't be followed
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
    """The definition of `name` in a file, or the (module, name) it is imported from; None: made in another way.

    Raises _Missing when the file has no such name, or is no Python.
    """
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    has: set[str] = set()
    starred: list[str] = []
    try:
        text = file.read_text(encoding="utf-8")
        body = ast.parse(text, str(file)).body
    except (SyntaxError, ValueError) as error:  # the second for what is no UTF-8
        raise _Missing(f"{module} can't be imported: {type(error).__name__}: {error}") from None
    for node in _statements(body):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            if node.name == name:
                return node
            has.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            source = _source(node, package)
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return source, alias.name
                has.add(alias.asname or alias.name)
            starred += [source] if "*" in [alias.name for alias in node.names] else []
        elif _assigns(node):
            has |= {word.id for word in ast.walk(node) if isinstance(word, ast.Name)}
    if name in has or "__getattr__" in has or "globals()" in text or "sys.modules[" in text:
        return None
    for source in starred:
        try:
            other = _file(source)
            return _lookup(other, source, name) if other else None
        except _Missing:
            continue
    close = nearest(name, (word for word in has if not word.startswith("_")))
    raise _Missing(f"{module} has no {name}", f"{module}.{close}" if close else None)


def _source(node: ast.ImportFrom, package: str) -> str:
    """The module that a `from ... import` in a file of `package` reads."""
    names = package.split(".")
    parent = names[: len(names) - node.level + 1] if node.level else []
    return ".".join([*parent, *([node.module] if node.module else [])])


def _assigns(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those under `if`, `try` and `with` included."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            handlers = [inner for handler in getattr(node, "handlers", ()) for inner in handler.body]
            parts = (node.body, handlers, getattr(node, "orelse", []), getattr(node, "finalbody", []))
            yield from (inner for part in parts for inner in _statements(part))


@cache
def _file(module: str) -> Path | None:
    """The source of a module; only its top package is looked up, nothing is imported. None: it has none to read.

    Raises _Missing when the package has no such module.
    """
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    homes = list(spec.submodule_search_locations or ()) if spec else []
    if not homes:
        file = Path(spec.origin) if spec and spec.origin and not rest else None
        return file if file and file.suffix == ".py" and file.is_file() else None
    bases = [Path(home, *rest) for home in homes]
    for base in bases:
        for file in (base / "__init__.py", base.with_name(f"{base.name}.py")):
            if file.is_file() and (rest or file.name == "__init__.py"):
                return file
    if any(base.is_dir() or any(base.parent.glob(f"{base.name}.*")) for base in bases):
        return None
    raise _Missing(f"there is no module {module}")
