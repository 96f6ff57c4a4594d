"""The layers that a pattern spells: their parts, and the shorthand for one that is repeated."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from .component import Config, refuse

_REPEATED = re.compile(r"\s*(\d+)\s*\*\s*(.+)")


@dataclass(frozen=True)
class Part:
    """One part of a layer: its kind (`mixer`, `ffn`), the slot that defines it, and the slot's config."""

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
