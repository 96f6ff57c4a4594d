"""All findings about one config, what becomes of its layers when it is deployed, and whether they let it pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from builder.finding import SECTIONS, Finding, Status

from .deploy import Deployed


@dataclass(frozen=True)
class Report:
    """The findings of a check, in order, and the deploy contract; `ok` unless a finding is a FAIL."""

    findings: tuple[Finding, ...]
    deploy: tuple[Deployed, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing fails."""
        return not self.failures

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings that stop training and generation."""
        return self.of(Status.FAIL)

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

    def of(self, status: Status) -> tuple[Finding, ...]:
        """The findings of one status."""
        return tuple(finding for finding in self.findings if finding.status is status)

    def to_dict(self) -> dict[str, Any]:
        """The report in plain Python, as checklist.json holds it."""
        return {
            "ok": self.ok,
            "counts": self.counts,
            "findings": [finding.to_dict() for finding in self.findings],
            "deploy": [row.to_dict() for row in self.deploy],
        }

    def __str__(self) -> str:
        lines: list[str] = []
        for section, title in SECTIONS.items():
            lines.append(f"{section}. {title}")
            for finding in (f for f in self.findings if f.section == section):
                lines.append(f"  {finding.status:<8}{finding.path:<28}{finding.found}")
                lines.append(f"          {finding.rule}")
                lines += [f"          fix: {finding.fix}"] if finding.fix else []
        return "\n".join([*lines, *_contract(self.deploy), self.verdict])


def _contract(rows: tuple[Deployed, ...]) -> Iterator[str]:
    """The deploy contract as lines: the facts below each other, what they are judged by under each row."""
    if not rows:
        return
    yield "Deploy contract"
    head = tuple(heading for _, heading in Deployed.COLUMNS)
    table = [head, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)][:-2]
    for *facts, rule, fix in table:
        yield ("  " + "  ".join(fact.ljust(width) for fact, width in zip(facts, widths, strict=True))).rstrip()
        if facts != list(head[:-2]):
            yield f"          {rule}"
            yield from [f"          fix: {fix}"] if fix else []
