"""One answer of the checklist: its status, where it comes from, the rule, and what to write instead."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """PASS: the answer is known and right. WARN: allowed, but look. FAIL: stops. UNKNOWN: could not be derived."""

    PASS = "PASS"
    WARN = "WARN"
    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"


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
        """The same finding with its path below `path`, for findings that a component states about itself."""
        return replace(self, path=f"{path}.{self.path}" if self.path else path)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"status": str(self.status), "section_name": SECTIONS[self.section]}
