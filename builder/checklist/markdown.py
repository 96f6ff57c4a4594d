"""The report as Markdown: what must be mended first, then a table a section, and the deploy contract."""

from __future__ import annotations

from builder.finding import SECTIONS, Finding, Status
from builder.markdown import code, plain, table

from .deploy import Deployed
from .report import Report

_SEEN = {Status.PASS: "PASS", Status.WARN: "⚠️ **WARN**", Status.FAIL: "❌ **FAIL**", Status.UNKNOWN: "❔ UNKNOWN"}
_HEAD = ("status", "path", "found", "rule", "write")


def markdown(report: Report, title: str = "Checklist") -> str:
    """The whole report; a FAIL and a WARN stand on top too, and are marked where they are."""
    urgent = [finding for status in (Status.FAIL, Status.WARN) for finding in report.of(status)]
    blocks = [f"# {plain(title)}\n", f"**{plain(report.verdict)}**\n"]
    blocks += ["\n".join(map(_line, urgent)) + "\n"] if urgent else []
    for section, name in SECTIONS.items():
        rows = [_row(finding) for finding in report.findings if finding.section == section]
        blocks += [f"## {section}. {name}\n", *([table(_HEAD, rows)] if rows else [])]
    if report.deploy:
        head = [heading for _, heading in Deployed.COLUMNS]
        rows = [(_SEEN[row.status], *map(plain, row.cells()[1:])) for row in report.deploy]
        blocks += ["## Deploy contract\n", table(head, rows)]
    return "\n".join(blocks)


def _line(finding: Finding) -> str:
    return f"- {_SEEN[finding.status]} {code(finding.path)}: {plain(finding.found)}" + (
        f"; write {plain(finding.fix)}" if finding.fix else ""
    )


def _row(finding: Finding) -> tuple[str, ...]:
    return _SEEN[finding.status], code(finding.path), *map(plain, (finding.found, finding.rule, finding.fix))
