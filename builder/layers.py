"""The layers that a pattern spells: their parts, the order that these must have, and the shorthand for repetition."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from .component import Config, refuse

KINDS = {"mixer": "mixer", "cross": "[+ cross]", "ffn": "[+ ffn]"}
"""The kinds of parts in the order that a layer has them, as they are written where the rule is told."""

_REPEATED = re.compile(r"\s*(\d+)\s*\*\s*(.+)")


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
    key: str, entry: str, slots: Mapping[str, Config], kinds: Iterable[str]
) -> Iterator[tuple[str, str, str, str]]:
    """What is wrong with an entry of the pattern at `key`, whose layers may have parts of these kinds."""
    undefined = [name for part in entry.split("+") if (name := part.strip()) not in slots]
    for name in undefined:
        rule = f"every part of the pattern is a slot of the model; slots: {', '.join(slots) or 'none'}"
        define = f"define model.{name}={{name: ...}}, or " if name else ""
        yield key, entry, rule, f"{define}use one of the slots"
    found = [] if undefined else [part.kind for part in spelt(entry, slots)]
    allowed = [kind for kind in KINDS if kind in kinds]
    ordered = [kind for kind in allowed if kind in found]
    if not undefined and (found != ordered or found[0] != "mixer"):
        rule = f"a layer is {' '.join(KINDS[kind] for kind in allowed)}, not {' + '.join(found)}"
        yield key, entry, rule, f"e.g. {'+'.join('attention' if kind == 'mixer' else kind for kind in allowed)}"


def written_out(pattern: Iterable[str]) -> list[str]:
    """A pattern with each `3 * attention+ffn` written out three times; raises pydantic's error for 0 times."""
    entries: list[str] = []
    for entry in pattern:
        repeated = _REPEATED.fullmatch(entry)
        times, layer = (int(repeated[1]), repeated[2]) if repeated else (1, entry)
        if times < 1:
            refuse("", entry, "a layer that is repeated is there at least once", "leave the entry out")
        entries += [layer] * times
    return entries
