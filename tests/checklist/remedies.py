"""What is told of a config, and its fix, done to the config as a user who reads it would."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from builder.checklist import check
from builder.compose import CONF, is_group
from builder.data import Corpus, prepare
from builder.errors import ArchlabError, ConfigError
from builder.finding import Status
from builder.load import load
from builder.spec import RunSpec
from builder.training.fit import rehearse

_KEY = re.compile(r"(?<![\w.{/~-])([A-Za-z_][\w.]*(?:/\w+)*)=")
_DELETED = re.compile(r"(?:~|leave (?!it |one |the |that ))([A-Za-z_][\w.]*)")
_RENAMED = re.compile(r"did you mean ([\w.]+)\?")


@dataclass(frozen=True)
class Told:
    """One thing that is wrong with a config: where, by which rule, what to write, and who said so."""

    by: str
    path: str
    rule: str
    fix: str
    found: str

    @property
    def key(self) -> tuple[str, str]:
        """What makes it the same thing in another config: numbers are those of the config."""
        return self.path, re.sub(r"[\d.]+", "#", self.rule)


@dataclass(frozen=True)
class Verdict:
    """What a user is told of a config before its first step; `spec` and `corpus` when it may begin."""

    told: tuple[Told, ...]
    spec: RunSpec | None = None
    corpus: Corpus | None = None
    warned: tuple[str, ...] = ()

    @property
    def by(self) -> str:
        return self.told[0].by if self.told else "passed"


def judged(config: dict[str, Any], cache: Path, probes: bool = True, trains: bool = True) -> Verdict:
    """A config on the way that every command goes: load, read the data, check, rehearse."""
    try:
        spec = load(config)
    except ConfigError as error:
        return Verdict(_problems("load", error))
    try:
        corpus = prepare(spec, cache=cache)
    except ArchlabError as error:
        return Verdict(_problems("data", error))
    report = check(spec, probes=probes, corpus=corpus, trains=trains)
    if report.failures:
        return Verdict(tuple(Told("checklist", f.path, f.rule, f.fix, f.found) for f in report.failures))
    try:
        rehearse(spec)
    except ArchlabError as error:
        return Verdict(_problems("rehearsal", error))
    warned = tuple(finding.path for finding in report.findings if finding.status is Status.WARN)
    return Verdict((), spec, corpus, warned)


def _problems(by: str, error: ArchlabError) -> tuple[Told, ...]:
    if not isinstance(error, ConfigError):
        return (Told(by, "", str(error), "", ""),)
    return tuple(Told(by, each.path, each.rule, each.fix, each.found) for each in error.problems)


def remedies(told: Told, config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The config as each literal alternative of the fix would make it; nothing for a fix in prose."""
    if renamed := _RENAMED.search(told.fix):
        changed = deepcopy(config)
        _set(changed, renamed[1].split("."), _popped(changed, told.path.split(".")))
        yield changed
        return
    if gone := _DELETED.findall(told.fix):
        changed = deepcopy(config)
        for path in gone:
            _popped(changed, path.split("."))
        yield changed
    for settings in alternatives(told.fix):
        changed = deepcopy(config)
        for key, value in sorted(settings, key=lambda pair: not is_group(pair[0])):  # files first, as Hydra does
            _apply(changed, key, value)
        yield changed


def alternatives(fix: str) -> Iterator[list[tuple[str, Any]]]:
    """The settings of each alternative: words that stand together, without `or` or a comma between them."""
    settings: list[tuple[str, Any]] = []
    end = None
    for match in _KEY.finditer(fix):
        if end is not None and match.start() < end:
            continue  # inside of a value
        if settings and fix[end : match.start()].strip():
            yield settings
            settings = []
        text, end = _value(fix, match.end())
        if text in ("", "...") or "<" in text or "..." in text:
            if settings:
                yield settings
            settings, end = [], None
            continue
        settings.append((match[1], yaml.safe_load(text)))
    if settings:
        yield settings


def _value(fix: str, start: int) -> tuple[str, int]:
    depth, place, quoted = 0, start, ""
    while place < len(fix):
        letter = fix[place]
        if quoted:
            quoted = "" if letter == quoted else quoted
        elif letter in "'\"":
            quoted = letter
        elif letter in "[{":
            depth += 1
        elif letter in "]}":
            depth -= 1
        elif depth == 0 and letter in " ,;?":
            break
        place += 1
    return fix[start:place], place


def _apply(config: dict[str, Any], key: str, value: Any) -> None:
    """One override, as Hydra would understand it."""
    if not is_group(key) or not isinstance(value, str):
        node = _at(config, key.split("."))
        if isinstance(value, dict) and isinstance(node, dict) and value.get("name") in (None, node.get("name")):
            value = node | value
        _set(config, key.split("."), value)
        return
    file = yaml.safe_load((CONF / key / f"{value}.yaml").read_text()) or {}
    file.pop("defaults", None)
    if key == "model":
        config["model"] = {**file, **config["model"], "kind": file["kind"]}
        config["model"] |= {"encoder": None} if "encoder" not in file else {}
    elif key == "trainer":
        config["trainer"] = {"_target_": "lightning.Trainer", **config["trainer"], **file["trainer"]}
    else:
        file = {k: v for k, v in file.items() if v != "???"}
        _set(config, key.split("/"), _resolved(file, config))


def _resolved(file: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    data = config.get("data")
    symbols = data.get("n_symbols", 64) if isinstance(data, dict) else 64
    return {key: symbols if isinstance(value, str) and "${" in value else value for key, value in file.items()}


def _at(config: Any, path: list[str]) -> Any:
    for step in path:
        config = config.get(step) if isinstance(config, dict) else None
    return config


def _set(config: dict[str, Any], path: list[str], value: Any) -> None:
    node = config
    for step in path[:-1]:
        if not isinstance(node.get(step), dict):
            node[step] = {}
        node = node[step]
    node[path[-1]] = value


def _popped(config: dict[str, Any], path: list[str]) -> Any:
    parent = _at(config, path[:-1])
    return parent.pop(path[-1], None) if isinstance(parent, dict) else None
