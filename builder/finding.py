"""One answer of the checklist: its status, where it comes from, the rule, and what to write instead."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """PASS: the answer is known and right. WARN: allowed, but look. FAIL: stops. UNKNOWN: could not be derived."""

    PASS = "PASS"
    WARN = "WARN"
    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"


_KEY = re.compile(r"(?<![\w.{/~])([a-z_][\w.]*)=")
"""A key of a fix, such as `d_head=8`; not one that lies in a value."""

SECTIONS = {1: "Dimensions", 2: "Masks", 3: "Positions", 4: "Structure", 5: "Experts", 6: "Vocabulary"}


@dataclass(frozen=True)
class Finding:
    """A finding of section 1 to 6 (chapter 3.11): `path` holds `found`, judged by `rule`; `fix` is what to write."""

    status: Status
    section: int
    path: str
    found: str
    rule: str
    fix: str = ""

    def under(self, path: str) -> Finding:
        """The same finding with its path below `path`, for findings that a component states about itself.

        Keys of the fix that are the component's own, those without a dot or below the same knob as the path, are made
        whole too, so that a fix can be typed as it stands.
        """
        home = self.path.partition(".")[0]

        def whole(key: re.Match[str]) -> str:
            own = "." not in key[1] or key[1].partition(".")[0] == home
            return f"{path}.{key[0]}" if own else key[0]

        return replace(self, path=f"{path}.{self.path}" if self.path else path, fix=_KEY.sub(whole, self.fix))

    def to_dict(self) -> dict[str, Any]:
        """The finding in plain Python, with the name of its section."""
        return asdict(self) | {"status": str(self.status), "section_name": SECTIONS[self.section]}
