"""The report itself: what makes it ok, and that every form of it holds every finding."""

import json
import subprocess
import sys

import pytest
from rich.console import Console

from builder.checklist.render import render
from builder.checklist.report import Report
from builder.finding import SECTIONS, Finding, Status

FINDINGS = tuple(
    Finding(status, section, f"model.part{section}.{status.lower()}", f"found [{i}] [b]", f"the rule {i}", f"x={i}")
    for i, (section, status) in enumerate((s, t) for s in SECTIONS for t in Status)
)


def without(*statuses):
    return Report(tuple(finding for finding in FINDINGS if finding.status not in statuses))


def test_only_a_failure_stops():
    assert not Report(FINDINGS).ok and without(Status.FAIL).ok and Report(()).ok
    assert [finding.status for finding in Report(FINDINGS).failures] == [Status.FAIL] * len(SECTIONS)


def test_it_counts_every_status():
    assert Report(FINDINGS).counts == dict.fromkeys(["PASS", "WARN", "FAIL", "UNKNOWN"], len(SECTIONS))
    assert Report(()).counts == dict.fromkeys(["PASS", "WARN", "FAIL", "UNKNOWN"], 0)
    assert "mend" in Report(FINDINGS).verdict and "ready" in without(Status.FAIL).verdict


def test_the_plain_form_is_json_and_whole():
    plain = json.loads(json.dumps(Report(FINDINGS).to_dict()))
    assert plain["ok"] is False and plain["counts"]["FAIL"] == len(SECTIONS)
    for finding, entry in zip(FINDINGS, plain["findings"], strict=True):
        assert entry == {
            "status": finding.status.value, "section": finding.section, "section_name": SECTIONS[finding.section],
            "path": finding.path, "found": finding.found, "rule": finding.rule, "fix": finding.fix,
        }  # fmt: skip


def test_the_text_form_is_whole_and_in_order():
    text = str(Report(FINDINGS))
    for finding in FINDINGS:
        for part in (finding.path, finding.found, finding.rule, f"fix: {finding.fix}"):
            assert part in text
    places = [text.index(f"{number}. {name}") for number, name in SECTIONS.items()]
    assert places == sorted(places) and text.endswith(Report(FINDINGS).verdict)


@pytest.mark.parametrize("width", [80, 200])
def test_the_terminal_form_is_whole(width):
    console = Console(record=True, width=width, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render(Report(FINDINGS), title="A title"))
    text = " ".join(console.export_text().split())
    assert "A title" in text and Report(FINDINGS).verdict in text
    for finding in FINDINGS:
        assert finding.path in text and finding.status.value in text
        assert finding.found in text and finding.rule in text and f"write {finding.fix}" in text


def test_a_real_report_is_whole_on_a_terminal(judge):
    report = judge({"model.attention": {"name": "gqa", "n_heads": 4, "position": {"name": "learned"}}}, probes=True)
    console = Console(record=True, width=250, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render(report))
    text = " ".join(console.export_text().split())
    assert len(report.findings) > 10
    for finding in report.findings:
        for part in (finding.path, finding.found, finding.rule, finding.fix):
            assert " ".join(part.split()) in text


def test_sections_come_in_order(judge):
    sections = [finding.section for finding in judge(probes=True).findings]
    assert sections == sorted(sections) and set(sections) == set(SECTIONS)


@pytest.mark.parametrize(("trains", "heavy"), [(False, []), (True, ["torch._dynamo"])])
def test_a_check_imports_neither_lightning_nor_wandb(trains: bool, heavy: list[str]):
    """Nor torch's compiler, but where the memory of a step is forecast: fake tensors lie in it."""
    code = f"""
import sys
from builder import check, compose, load
check(load(compose(["model.n_layers=2"])), trains={trains})
print(*sorted({{"lightning", "pytorch_lightning", "wandb", "transformers", "torch._dynamo"}} & set(sys.modules)), "end")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == [*heavy, "end"], run.stdout
