"""The overrides that may be typed next: choices of conf/ and recipes/, keys of what was composed, knobs of the code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from omegaconf import OmegaConf

from builder.compose import GROUPS, TEXTS, composed, is_group
from builder.errors import ArchlabError

from .knobs import Knobs

CHECK = {
    "format": ("json", "markdown", "table", "text"),
    "probes": ("false", "true"),
    "schema": ("false", "partial", "true"),
}
"""What may stand at the keys of recipes.check that are no run's; the forms themselves come with torch."""


def words(typed: str, others: Sequence[str], job: str) -> Iterator[str]:
    """What the word `typed` may become, beside the other overrides of a command; one that is whole ends in a space.

    Of the knobs of a slot those of the component that is chosen by then.
    """
    body = typed.lstrip("+~")
    signs, (key, given, value) = typed[: len(typed) - len(body)], body.partition("=")
    config = _config(others, job)
    if given:
        *before, last = value.split(",")  # of several values, as a sweep has them
        start = ",".join([*before, ""]) if before else ""
        found = (f"{key}={start}{choice} " for choice in _values(key, config, job) if choice.startswith(last))
    else:
        found = (word for word in (*_groups(config, job), *_keys(key, config)) if word.startswith(key))
    yield from (f"{signs}{word}" for word in found)


def _config(others: Sequence[str], job: str) -> dict[str, Any]:
    """What is composed of the other words, or of none of them where they are no config yet."""
    known = [word.partition(",")[0] if "[" not in word else word for word in others]
    known = [word for word in known if "=" in word and word.partition("=")[0] not in TEXTS]
    try:
        made = composed(known, job)
    except ArchlabError:
        made = composed([], job)
    return OmegaConf.to_container(made)  # type: ignore[return-value]


def _groups(config: dict[str, Any], job: str) -> Iterator[str]:
    """The groups that a command chooses from: all where a run is described, else those of its own keys."""
    for root in GROUPS:
        for folder in sorted({file.parent.relative_to(root).as_posix() for file in root.glob("*/**/*.yaml")}):
            top = folder.partition("/")[0]
            if top in config or ("model" in config and top != "hydra" and (top != "sweep" or job == "train")):
                yield f"{folder}="


def _keys(typed: str, config: dict[str, Any]) -> Iterator[str]:
    """The keys beside the one that is typed: with a dot where there are more below."""
    parent = typed.rpartition(".")[0]
    knobs = _knobs(parent, config)
    for key in knobs.names():
        yield f"{parent}.{key}".lstrip(".") + ("." if knobs.below(key).has_keys else "=")


def _values(key: str, config: dict[str, Any], job: str) -> Sequence[str]:
    group = key.partition("@")[0]
    if is_group(group):
        return sorted(file.stem for root in GROUPS for file in (root / group).glob("*.yaml"))
    return CHECK[key] if job == "check" and key in CHECK else _knobs(key, config).values()


def _knobs(path: str, config: dict[str, Any]) -> Knobs:
    knobs = Knobs.of(config)
    for step in path.split(".") if path else ():
        knobs = knobs.below(step)
    return knobs
