"""All findings about one config, and whether they let it pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from builder.finding import SECTIONS, Finding, Status


@dataclass(frozen=True)
class Report:
    """The findings of a check, in order; `ok` unless one of them is a FAIL."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not self.failures

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings that stop training and generation."""
        return tuple(finding for finding in self.findings if finding.status is Status.FAIL)

    @property
    def counts(self) -> dict[str, int]:
        """How many findings have each status."""
        counted = Counter(finding.status for finding in self.findings)
        return {status.value: counted[status] for status in Status}

    @property
    def verdict(self) -> str:
        """One line: the counts, and what follows from them."""
        counts = ", ".join(f"{count} {status}" for status, count in self.counts.items() if count)
        return f"{counts}: {'ready to train' if self.ok else 'not built; mend each FAIL'}"

    def to_dict(self) -> dict[str, Any]:
        """The report in plain Python, as checklist.json holds it."""
        return {"ok": self.ok, "counts": self.counts, "findings": [finding.to_dict() for finding in self.findings]}

    def __str__(self) -> str:
        lines: list[str] = []
        for section, title in SECTIONS.items():
            lines.append(f"{section}. {title}")
            for finding in (f for f in self.findings if f.section == section):
                lines.append(f"  {finding.status:<8}{finding.path:<28}{finding.found}")
                lines.append(f"          {finding.rule}")
                lines += [f"          fix: {finding.fix}"] if finding.fix else []
        return "\n".join([*lines, self.verdict])
