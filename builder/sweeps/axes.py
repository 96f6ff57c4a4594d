"""Axes to points: each point is the list of overrides that sets it apart, as they would be typed."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from builder.errors import ArchlabError, ConfigError, Problem

from .spec import Axes, SweepSpec

Word = tuple[str, str]
"""A key and its value, both as typed."""

Point = tuple[Word, ...]

_PLAIN = re.compile(r"[A-Za-z_][\w./:-]*")
_MEANT = re.compile(r"(?i)true|false|null|nan|inf")


def points(words: Iterable[str], spec: SweepSpec, holds: Callable[[Point, str, Any], bool]) -> list[Point]:
    """Every point of the product of all axes: those of the command line, whose commas make axes, and of `spec`.

    `holds(point, key, value)` tells whether a point's config has a value: it is asked for conditional axes, in turn,
    so that one may depend on another before it. Raises ArchlabError when a word can't be parsed.
    """
    typed = _typed(words)
    _refuse_twice(typed, spec)
    factors: list[list[Point]] = [[((key, value),) for value in values] for key, values in typed.items()]
    factors += _product(spec.product)
    factors += [_paired(group) for group in spec.paired]
    if spec.listed:
        factors.append([tuple((key, said(value)) for key, value in point.items()) for point in spec.listed])
    made = [tuple(itertools.chain(*parts)) for parts in itertools.product(*factors)]
    for number, rule in enumerate(spec.conditional):
        extra = [tuple(itertools.chain(*parts)) for parts in itertools.product(*_product(rule.product))]
        met = [all(holds(point, key, value) for key, value in rule.when.items()) for point in made]
        if not any(met):
            why = "no point has these values, so the rule adds nothing"
            fix = "keys and values as a config or the command line has them, e.g. {model/attention: gqa}"
            raise ConfigError([Problem(f"sweep.conditional.{number}.when", str(rule.when), why, fix)])
        made = [
            longer
            for point, has in zip(made, met, strict=True)
            for longer in ([point + more for more in extra] if has else [point])
        ]
    return [_last_wins(point) for point in made]


def as_words(point: Point) -> list[str]:
    """A point as it would be typed."""
    return [f"{key}={value}" for key, value in point]


def said(value: Any) -> str:
    """A YAML value as Hydra's grammar writes it."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{said(key)}:{said(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(map(said, value)) + "]"
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and not _MEANT.fullmatch(value) else _quoted(value)
    return json.dumps(value)


def _quoted(text: str) -> str:
    escaped = text.replace("\\'", "\\\\'").replace("'", "\\'")
    return f"'{escaped}'"


def _typed(words: Iterable[str]) -> dict[str, list[str]]:
    """The values that each key of the command line takes; a key that is given twice has the last ones."""
    axes: dict[str, list[str]] = {}
    for word in words:
        try:
            (override,) = OverridesParser.create().parse_overrides([word])
        except HydraException as error:
            raise ArchlabError(f"{word}: {str(error).splitlines()[0]}") from None
        key = override.get_key_element()
        if override.is_sweep_override() and not override.is_discrete_sweep():
            rule = "a range of real numbers belongs into a search: sweep.search.space"
            raise ArchlabError(f"{word}: found an interval; {rule}, or list values with commas")
        values = override.sweep_string_iterator() if override.is_sweep_override() else None
        axes[key] = list(values) if values is not None else [override.get_value_element_as_str()]
    return axes


def _refuse_twice(typed: dict[str, list[str]], spec: SweepSpec) -> None:
    """Raises ConfigError for an axis that is given in two places, of which one would silently win."""
    places: dict[str, list[str]] = {key: ["the command line"] for key, values in typed.items() if len(values) > 1}
    groups = [("product", spec.product), *((f"paired.{number}", group) for number, group in enumerate(spec.paired))]
    groups += [("listed", {key: None for point in spec.listed for key in point})]
    for place, group in groups:
        for key in group:
            places.setdefault(key, []).append(f"sweep.{place}")
    twice = {key: found for key, found in places.items() if len(found) > 1}
    rule = "an axis is given in one place"
    problems = [
        Problem(key, f"values in {' and in '.join(found)}", rule, "one of them") for key, found in twice.items()
    ]
    kept = [key for key in (*typed, *places) if key.startswith("output.") and len(typed.get(key, [0, 0])) > 1]
    rule = "a sweep places its runs itself: they differ in their configs, not in where they lie"
    problems += [Problem(key, "an axis", rule, "one value, or none") for key in dict.fromkeys(kept)]
    if problems:
        raise ConfigError(problems)


def _product(axes: Axes) -> list[list[Point]]:
    return [[((key, said(value)),) for value in values] for key, values in axes.items()]


def _paired(group: Axes) -> list[Point]:
    rows = zip(*group.values(), strict=True)
    return [tuple((key, said(value)) for key, value in zip(group, row, strict=True)) for row in rows]


def _last_wins(point: Point) -> Point:
    """Each key once, where it stood first, with the value that was given last."""
    return tuple(dict(point).items())
