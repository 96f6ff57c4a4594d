"""Plain dict in, RunSpec out: every problem of the config at once, each with its path and the nearest valid name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from difflib import SequenceMatcher
from functools import partial
from itertools import chain
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from . import registry, remedy, targets
from .budget import meet
from .component import Room
from .components.init import completed
from .errors import ConfigError, Problem, shown
from .judged import class_at, field_at, has, holds_slots, named_slots, room_of, value_at
from .layers import kinds_of
from .spec import RunSpec

_ROOT = Path(__file__).parents[1]
S = TypeVar("S", bound=BaseModel)
# pydantic's words for a wrong type, where YAML has others
_RULES = {
    "tuple_type": "a list, e.g. [a, b]",
    "model_type": "a section of keys, not one value",
    "dict_type": "keys with their values",
    "bool_type": "true or false",
    "too_short": "a list of at least one entry",
}


def load(config: Mapping[str, Any]) -> RunSpec:
    """The RunSpec that a plain dict describes; the tokenizer gets the special tokens that the objective writes,
    `vocab_size: null` becomes the tokenizer's size, and a multiplier that belongs to the init and is left open what
    that makes it.

    Raises ConfigError with every problem found.
    """
    if strange := list(_strange(config)):
        raise ConfigError(strange)
    config = meet(deepcopy(dict(config)))  # what the caller does to it later doesn't reach the spec
    spec = _with_specials(read(RunSpec, config, also=targets.problems(config)))
    if spec.model.vocab_size is None:
        tokenizer: Any = spec.tokenizer
        model = spec.model.model_copy(update={"vocab_size": tokenizer.size})
        spec = spec.model_copy(update={"model": model})
    return spec.model_copy(update={"model": completed(spec.model)})


def _with_specials(spec: RunSpec) -> RunSpec:
    """`spec` with the special tokens of its objective in its tokenizer."""
    tokenizer: Any = spec.tokenizer
    wanted = spec.objective.component.specials(spec.objective)
    more = tuple(name for name in wanted if name not in tokenizer.specials)
    if not more:
        return spec
    return spec.model_copy(
        update={"tokenizer": tokenizer.model_copy(update={"specials": (*tokenizer.specials, *more)})}
    )


def read(schema: type[S], config: Mapping[str, Any], also: list[Problem] | None = None) -> S:
    """`config` as an instance of `schema`; raises ConfigError with every problem, those of `also` included."""
    problems = [Problem(path, "???", "a value that you must give", f"{path}=...") for path in _missing(config)]
    others = also or []
    try:
        spec = schema.model_validate(config)
    except ValidationError as error:
        lines = [line for line in error.errors(include_url=False) if line["input"] != "???"]
        problems += _once(_problem(schema, config, line) for line in lines)
        judged = {problem.path for problem in problems}
        problems += [problem for problem in others if problem.path not in judged]
        raise ConfigError(problems) from None
    problems += others
    if problems:
        raise ConfigError(problems)
    return spec


def _strange(node: Any, path: str = "") -> Iterator[Problem]:
    """Where something stands that isn't plain Python, such as a DictConfig."""
    if type(node) is dict:
        for key, value in node.items():
            yield from _strange(value, f"{path}.{key}" if path else str(key))
    elif path and type(node) in (list, tuple):
        for index, value in enumerate(node):
            yield from _strange(value, f"{path}.{index}")
    elif not path or not isinstance(node, str | int | float | None):
        rule = "plain Python: a dict of dicts, lists, text, numbers, true, false and null"
        yield Problem(path, f"a {type(node).__name__}", rule, "load(compose(overrides)), or OmegaConf.to_container")


def _missing(node: Any, path: str = "") -> Iterator[str]:
    """Where `???` stands: Hydra's mark for a value that must be given."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _missing(value, f"{path}.{key}" if path else str(key))
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _missing(value, path)
    elif node == "???":
        yield path


def _once(problems: Iterable[Problem]) -> list[Problem]:
    """One problem for a value that the rules of several types refuse: it may be of any of them."""
    found: dict[tuple[str, str], Problem] = {}
    for problem in problems:
        before = found.get(key := (problem.path, problem.found))
        rule = problem.rule if before is None else f"{before.rule} or {problem.rule.removeprefix('must be ')}"
        found[key] = replace(before or problem, rule=rule)
    return list(found.values())


def _steps(schema: type[BaseModel], config: Mapping[str, Any], line: ErrorDetails) -> list[str]:
    """The keys that lead to a fault; pydantic goes on with the name of a type where several are allowed."""
    steps = [str(step) for step in line["loc"]]
    for depth in range(1, len(steps)):
        field = field_at(schema, config, steps[:depth])
        several = field is not None and get_origin(field.annotation) in (Union, UnionType) and room_of(field) is None
        if several and class_at(schema, config, steps[:depth]) is None:
            return steps[:depth]
    return steps


def _problem(schema: type[BaseModel], config: Mapping[str, Any], line: ErrorDetails) -> Problem:
    steps = _steps(schema, config, line)
    path, context, parent = ".".join(steps), line.get("ctx", {}), value_at(config, steps[:-1])
    if line["type"] == "extra_forbidden" or (line["type"] == "not_a_slot" and not _declared(schema, config, steps)):
        return _unknown(schema, config, line, steps)
    written = partial(remedy.of_whole_list, steps=steps, config=config, field=partial(field_at, schema, config))
    if line["type"] == "missing":
        if isinstance(parent, list | tuple):
            *steps, place = steps
            fix = remedy.allowed(".".join(steps), field_at(schema, config, steps), parent, "", {})
            return Problem(".".join(steps), shown(parent), f"{int(place) + 1} entries or more", fix)
        return Problem(path, "nothing", "this key is required", written(f"{path}=..."))
    rule = context.get("rule") or _RULES.get(line["type"]) or line["msg"].removeprefix("Value error, ")
    fix = context.get("fix", "")
    if line["type"] == "not_a_slot":
        given = line["input"]
        fix = f"{path}.name={given if isinstance(given, str) and ':' in given else '...'}"
        if isinstance(given, str) and _is_name(schema, config, steps, given):
            group = _ROOT.joinpath("conf", *steps).is_dir()
            fix = f"{'/'.join(steps)}={given}" if group else f"{path}={{name: {given}}}"
    elif steps[-1:] == ["name"] and isinstance(line["input"], str):
        fix = _fitting(schema, config, steps, line["input"], fix)
    if not fix:
        fix = remedy.allowed(path, field_at(schema, config, steps), line["input"], line["type"], context)
    fix = remedy.whole(fix, steps, lambda section, key: has(schema, config, section, key))
    fix = written(fix)
    found = "nothing" if isinstance(parent, Mapping) and steps and steps[-1] not in parent else shown(line["input"])
    return Problem(path, found, rule.replace("Input should be ", "must be "), fix)


def _fitting(schema: type[BaseModel], config: Mapping[str, Any], steps: list[str], word: str, fix: str) -> str:
    """`fix`, said of the name of a slot; of several that may be meant the first that can stand where the pattern has
    its slot."""
    around = class_at(schema, config, steps[:-2])
    if around is None or not holds_slots(around) or field_at(schema, config, steps[:-1]) is not None:
        return fix
    likely = registry.meant(registry.LAYER_ROOMS, word)
    if fix not in [f"name={name}" for name in likely]:
        return fix
    stated = (value_at(config, [*steps[:-2], *place]) for place in (["pattern"], ["encoder", "pattern"]))
    patterns = [each for each in stated if isinstance(each, list | tuple)] or [around.model_fields["pattern"].default]
    kinds = kinds_of(steps[-2], chain.from_iterable(patterns))
    fits = [name for name in likely if not kinds or registry.find(registry.LAYER_ROOMS, name).part in kinds]
    return f"name={fits[0]}" if fits else ""


def _is_name(schema: type[BaseModel], config: Mapping[str, Any], steps: list[str], word: str) -> bool:
    """Whether a slot may hold a component called `word`."""
    field = field_at(schema, config, steps)
    room = Room(*registry.LAYER_ROOMS) if field is None else room_of(field)
    return room is not None and any(word in registry.names(each) for each in room.rooms)


def _declared(schema: type[BaseModel], config: Mapping[str, Any], steps: list[str]) -> bool:
    """Whether a slot belongs there: a field of the schema, or a part of the pattern beside it."""
    around = class_at(schema, config, steps[:-2])
    if around is not None and len(steps) > 1 and named_slots(around, steps[-2]):
        return True
    here = class_at(schema, config, steps[:-1])
    pattern = value_at(config, [*steps[:-1], "pattern"])
    entries = [str(entry).rpartition("*")[2] for entry in pattern] if isinstance(pattern, list) else []
    parts = [part.strip() for entry in entries for part in entry.split("+")]
    return here is not None and (steps[-1] in here.model_fields or steps[-1] in parts)


def _unknown(schema: type[BaseModel], config: Mapping[str, Any], line: ErrorDetails, steps: list[str]) -> Problem:
    *parents, key = steps
    here = class_at(schema, config, parents)
    valid = list(here.model_fields) if here else []
    slot = "; any other key is a slot, {name: ..., its own knobs}" if here and holds_slots(here) else ""
    named = value_at(config, [*parents, "name"])
    where = ".".join(parents)
    owner = f"{where} ({named})" if isinstance(named, str) else where or "the config"
    path = ".".join(steps)
    close = _closest(key, where, (other for other in _keys(schema, config) if other != path))
    unnamed = f"{path}.name=..." if slot and isinstance(line["input"], Mapping) else ""
    unwanted = f"leave {path} out" + (f", or write ~{path} where a YAML of conf/ states it" if _is_stated(key) else "")
    fix = f"did you mean {close}?" if close else unnamed or unwanted
    if not parents and any(_ROOT.joinpath(home, key).is_dir() for home in ("conf", "recipes")):
        fix = f"begin the YAML that {key}= chooses with the line '# @package _global_'"
    return Problem(path, shown(line["input"]), f"{owner} has no such key; keys: {', '.join(valid)}{slot}", fix)


def _is_stated(key: str) -> bool:
    """Whether a YAML file of this project states a key of that name."""
    files = (file for home in ("conf", "recipes") for file in _ROOT.joinpath(home).rglob("*.yaml"))
    return any(re.search(rf"(?<![\w.]){re.escape(key)}:", file.read_text(encoding="utf-8")) for file in files)


def _closest(key: str, parent: str, valid: Iterator[str]) -> str | None:
    """The valid path whose last word is most like `key`: elsewhere it must be more so than below the same parent."""

    def likeness(path: str) -> float:
        home, _, word = path.rpartition(".")
        return SequenceMatcher(None, key, word).ratio() + (0.1 if home == parent else 0.0)

    best = max(valid, key=likeness, default="")
    return best if best and likeness(best) > 0.75 else None


def _keys(schema: type[BaseModel], config: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every key that this config may hold, as its path."""
    here = class_at(schema, config, list(path))
    for key in here.model_fields if here else ():
        yield ".".join((*path, key))
    node = value_at(config, list(path))
    for step, child in node.items() if isinstance(node, Mapping) and here else ():
        if here and named_slots(here, str(step)):
            for name in child if isinstance(child, Mapping) else ():
                yield from _keys(schema, config, (*path, str(step), str(name)))
        elif isinstance(child, Mapping):
            if here and holds_slots(here) and step not in here.model_fields:
                yield ".".join((*path, str(step)))
            yield from _keys(schema, config, (*path, str(step)))


def choose(value: Any, path: str, allowed: tuple[Any, ...]) -> Any:
    """`value`, which must be one of `allowed`; raises ConfigError naming `path` when it isn't."""
    if value not in allowed:
        raise ConfigError([Problem(path, shown(value), f"one of {', '.join(map(str, allowed))}")])
    return value
