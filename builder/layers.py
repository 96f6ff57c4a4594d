"""The layers that a pattern spells: their parts, the order that these must have, and the shorthand for repetition."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .component import Config, refuse
from .errors import nearest

KINDS = {"mixer": "mixer", "cross": "[+ cross]", "ffn": "[+ ffn]"}
"""The kinds of parts in the order that a layer has them, as they are written where the rule is told."""

MOST = 2048
"""Layers that a model may have: more are a slip of the finger, and would be written out and drawn one by one."""

_REPEATED = re.compile(r"\s*(\d+)\s*\*\s*([^*\s][^*]*)")


@dataclass(frozen=True)
class Part:
    """One part of a layer: its kind (`mixer`, `cross` or `ffn`), the slot that defines it, and the slot's config."""

    kind: str
    slot: str
    config: Config


@dataclass(frozen=True)
class LayerSpec:
    """Layer number `index`: its parts in order of use."""

    index: int
    parts: tuple[Part, ...]

    def __str__(self) -> str:
        return "+".join(part.slot for part in self.parts)

    @property
    def mixer(self) -> Part:
        """The part that mixes positions, which every layer has."""
        return self.parts[0]

    def part(self, kind: str) -> Part | None:
        """The part of that kind, None where the layer has none."""
        return next((part for part in self.parts if part.kind == kind), None)


def spelt(entry: str, slots: Mapping[str, Config]) -> tuple[Part, ...]:
    """The parts that an entry of a pattern names."""
    names = [name.strip() for name in entry.split("+")]
    return tuple(Part(slots[name].component.part, name, slots[name]) for name in names)


def misspelt(
    key: str, entries: Sequence[str], entry: str, slots: Mapping[str, Config], kinds: Iterable[str]
) -> Iterator[tuple[str, str, str, str]]:
    """What is wrong with an entry of the pattern at `key`, whose layers may have parts of these kinds."""
    meant = _meant(entry, slots, kinds)
    write = meant and f"model.{key}=[{','.join(meant if other == entry else other for other in entries)}]"
    undefined = [name for part in entry.split("+") if (name := part.strip()) not in slots]
    if "*" in entry:
        rule = f"a layer that is repeated is N * layer, N a whole number from 1 to {MOST}; slots: {', '.join(slots)}"
        yield key, entry, rule, write or f"model.{key}=[{next(iter(slots), '...')}]"
        return
    for name in undefined:
        rule = f"every part of the pattern is a slot of the model; slots: {', '.join(slots) or 'none'}"
        define = f"define model.{name}={{name: ...}}, or " if name else ""
        yield key, entry, rule, f"{define}{write or 'use one of the slots'}"
    found = [] if undefined else [part.kind for part in spelt(entry, slots)]
    allowed = [kind for kind in KINDS if kind in kinds]
    ordered = [kind for kind in allowed if kind in found]
    if not undefined and (found != ordered or found[0] != "mixer"):
        rule = f"a layer is {' '.join(KINDS[kind] for kind in allowed)}, not {' + '.join(found)}"
        yield key, entry, rule, write or "a layer that begins with a mixer"


def kinds_of(slot: str, pattern: Iterable[str]) -> set[str]:
    """The kinds of parts that may stand where the entries of a pattern name a slot; none where they don't."""
    kinds: set[str] = set()
    for entry in pattern:
        names = [name.strip() for name in str(entry).rpartition("*")[2].split("+")]
        for place, name in enumerate(names):
            last = place == len(names) - 1
            able = {"mixer"} if not place else {"ffn"} if place > 1 else {"cross", "ffn"} if last else {"cross"}
            kinds |= able if name == slot else set()
    return kinds


def _meant(entry: str, slots: Mapping[str, Config], kinds: Iterable[str]) -> str:
    """The layer of existing slots that comes nearest to an entry; "" where there is no mixer."""
    names = [name.strip() for name in entry.split("+")]
    found: list[str] = []
    for kind in (kind for kind in KINDS if kind in kinds):
        able = [slot for slot, config in slots.items() if config.component.part == kind]
        close = (nearest(name, able) for name in names if name not in slots)
        named = [name for name in names if name in able] or [word for word in close if word is not None]
        found += (named or able * (kind == "mixer"))[:1]
    return "+".join(found) if found and slots[found[0]].component.part == "mixer" else ""


def written_out(pattern: Iterable[str]) -> list[str]:
    """A pattern with each `3 * attention+ffn` written out three times; raises pydantic's error for 0 times, and where
    that makes more layers than a model may have."""
    pattern = list(pattern)
    entries: list[str] = []
    for entry in pattern:
        repeated = _REPEATED.fullmatch(entry)
        times, layer = (int(repeated[1].lstrip("0")[:9] or 0), repeated[2]) if repeated else (1, entry)
        if times < 1:
            refuse("", entry, "a layer that is repeated is there at least once", _once(pattern, entry, layer))
        if len(entries) + times > MOST:
            rule = f"a pattern spells {MOST} layers at most, and n_layers repeats it as often as it takes"
            every = ((_REPEATED.fullmatch(each), each) for each in pattern)
            refuse("", entry, rule, f"pattern=[{','.join(found[2] if found else each for found, each in every)}]")
        entries += [layer] * times
    return entries


def _once(pattern: list[str], entry: str, layer: str) -> str:
    """What to write where a layer is there no time: the others, or the layer once."""
    others = [other for other in pattern if other != entry] or [layer]
    return f"pattern=[{','.join(others)}]"
