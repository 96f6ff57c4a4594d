"""What is alike in all that is compared: costs within 1%, data, and what is validated; what isn't can't be ranked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from builder.spec import RunSpec

from .apart import belongs, shown
from .groups import Configuration
from .run import Run

TOLERANCE = 0.01
"""How far the most may be above the least, of numbers that count as alike."""


def _cost(name: str) -> Callable[[Run], Any]:
    return lambda run: run.costs.get(name)


def _reached(axis: str) -> Callable[[Run], Any]:
    return lambda run: getattr(run.end, axis) if run.end is not None else None


NUMBERS: Mapping[str, tuple[str, Callable[[Run], Any]]] = {
    "params": ("parameters", _cost("params")),
    "active_params": ("active parameters", _cost("active_params")),
    "flops": ("training FLOPs", _reached("flops")),
    "state_bytes_per_token": ("state bytes per token", _cost("state_bytes_per_token")),
    "tokens": ("training tokens", _reached("tokens")),
}
"""What may be alike as a number: its name in words, and where a run has it."""


Side = tuple[Configuration, Sequence[Run]]
"""A configuration, and its runs that count."""


def _validated(spec: RunSpec) -> str:
    """How much a validation reads."""
    limit = spec.trainer.get("limit_val_batches")
    if limit is None or (isinstance(limit, float) and limit == 1):
        return "all rows"
    return f"{limit:.3g} of the rows" if isinstance(limit, float) else f"{limit * spec.rows:,} rows"


def _targets(spec: RunSpec) -> str:
    """What a validation asks for; an objective that holds rows against each other asks more of more rows."""
    objective: Any = spec.objective.component
    knobs = dict(objective.validates(spec.objective))
    knobs |= {"rows": spec.rows} if objective.together else {}
    name = knobs.pop("name")
    told = ", ".join(f"{knob}={shown(value)}" for knob, value in knobs.items())
    return f"{name}({told})" if told else str(name)


WORDS: Mapping[str, tuple[str, Callable[[RunSpec], str]]] = {
    "validation": ("validated", _validated),
    "targets": ("targets", _targets),
}
"""What may be the same in words: its name, and where a config has it."""


@dataclass(frozen=True)
class Match:
    """How alike the configurations are in one thing: `low` and `high` are the least and the most of it.

    alike   None where it isn't known of all
    what    the verdict in words
    """

    aspect: str
    alike: bool | None
    what: str
    low: float | None = None
    high: float | None = None


def matches(sides: Sequence[Side]) -> list[Match]:
    """Of each thing, whether all the runs that count are alike in it."""
    return [match(sides) for match in MATCHES.values()]


def alike(match: Match, one: Side, other: Side) -> bool:
    """Whether the runs of two configurations are alike in what `match` is about."""
    return MATCHES[match.aspect]([one, other]).alike is True


def _numbers(aspect: str) -> Callable[[Sequence[Side]], Match]:
    words, read = NUMBERS[aspect]
    return lambda sides: _number(aspect, words, [read(run) for _, runs in sides for run in runs])


def _words(aspect: str) -> Callable[[Sequence[Side]], Match]:
    words, read = WORDS[aspect]

    def match(sides: Sequence[Side]) -> Match:
        told = {None if configuration.spec is None else read(configuration.spec) for configuration, _ in sides}
        if None in told:
            return Match(aspect, None, f"{words}: not known of configs that can't be loaded")
        listed = " and ".join(sorted(filter(None, told)))
        return Match(aspect, len(told) < 2, f"{words}: {listed}")

    return match


def _number(aspect: str, words: str, values: list[float | None]) -> Match:
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return Match(aspect, None, f"{words}: not known of {len(values) - len(known)} of {len(values)} runs")
    low, high = min(known), max(known)
    if low == high:
        return Match(aspect, True, f"{words}: {low:,} in all", low, high)
    near = high - low <= TOLERANCE * low
    times = "" if near or low <= 0 else f" (x {high / low:.3g})"
    return Match(aspect, near, f"{words}: {low:,} to {high:,}{times}", low, high)


def _data(groups: Sequence[Side]) -> Match:
    """By the fingerprints of text, split and tokenizer; by the config where one isn't known."""
    runs = [run for _, members in groups for run in members]
    texts = {run.corpus for run in runs}
    if None not in texts:
        what = "data: the same text, split and tokenizer" if len(texts) == 1 else f"data: {len(texts)} different texts"
        return Match("data", len(texts) == 1, what)
    stated = {
        str(sorted((path, value) for path, value in group.config.items() if belongs(path, ("data", "tokenizer"))))
        for group, _ in groups
    }
    if len(texts) == 1 and len(stated) == 1:
        return Match("data", True, "data: the same by the config; no run knows its fingerprint")
    return Match("data", None, "data: the fingerprint isn't known of all")


MATCHES: Mapping[str, Callable[[Sequence[Side]], Match]] = {
    **{aspect: _numbers(aspect) for aspect in NUMBERS},
    "data": _data,
    **{aspect: _words(aspect) for aspect in WORDS},
}
"""How alike configurations are, by what they may be alike in."""
