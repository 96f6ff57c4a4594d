"""What is alike in all that is compared, within 1%: parameters, FLOPs, tokens, data; what isn't can't be ranked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .apart import belongs
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


def matches(groups: Sequence[tuple[Configuration, Sequence[Run]]]) -> list[Match]:
    """Of each thing, whether all the runs that count are alike in it."""
    runs = [run for _, members in groups for run in members]
    found = [_number(aspect, words, [read(run) for run in runs]) for aspect, (words, read) in NUMBERS.items()]
    return [*found, _data(groups)]


def alike(match: Match, one: Sequence[Run], other: Sequence[Run]) -> bool:
    """Whether the runs of two configurations are alike in what `match` is about."""
    if match.aspect in NUMBERS:
        _, read = NUMBERS[match.aspect]
        return _number(match.aspect, "", [read(run) for run in (*one, *other)]).alike is True
    texts = {run.corpus for run in (*one, *other)}
    return len(texts) == 1 and None not in texts


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


def _data(groups: Sequence[tuple[Configuration, Sequence[Run]]]) -> Match:
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
