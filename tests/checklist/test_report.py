"""The report itself: what makes it ok, and that every form of it holds every finding and the deploy contract."""

import json
import subprocess
import sys

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from builder.checklist.deploy import Deployed
from builder.checklist.markdown import markdown
from builder.checklist.render import render
from builder.checklist.report import Report
from builder.finding import SECTIONS, Finding, Status

FINDINGS = tuple(
    Finding(status, section, f"model.part{section}.{status.lower()}", f"found [{i}] [b]", f"the rule {i}", f"x={i}")
    for i, (section, status) in enumerate((s, t) for s in SECTIONS for t in Status)
)

DEPLOY = (
    Deployed(
        "layers 0, 2 to 5", "attention", "rope", 32, 64, None, None, 4096, 8, 32768, Status.WARN, "far | off", "x=1"
    ),
    Deployed("encoder layer 1", "local", "learned", 32, 64, 16, 64, 1234567, 8, 9876536, Status.PASS, "as trained"),
)
SHOWN = ("layers 0, 2 to 5", "32,768", "1,234,567", "encoder layer 1", "learned", "far | off", "x=1", "as trained")


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


def test_the_deploy_contract_is_plain_python_too():
    (first, second) = json.loads(json.dumps(Report(FINDINGS, DEPLOY).to_dict()))["deploy"]
    assert first["status"] == "WARN" and first["state_bytes"] == 4096 and first["window"] is None
    assert second["table"] == 64 and second.keys() == {field for field, _ in Deployed.COLUMNS}


def test_without_layers_no_form_speaks_of_a_contract():
    for form in (str, markdown):
        assert "Deploy contract" in form(Report(FINDINGS, DEPLOY)) and "Deploy" not in form(Report(FINDINGS))


def test_the_text_form_is_whole_and_in_order():
    text = str(Report(FINDINGS, DEPLOY))
    assert all(part in text for part in SHOWN)
    for finding in FINDINGS:
        for part in (finding.path, finding.found, finding.rule, f"fix: {finding.fix}"):
            assert part in text
    places = [text.index(f"{number}. {name}") for number, name in SECTIONS.items()]
    assert places == sorted(places) and text.endswith(Report(FINDINGS).verdict)


@pytest.mark.parametrize("width", [80, 200])
def test_the_terminal_form_is_whole(width):
    console = Console(record=True, width=width, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render(Report(FINDINGS, DEPLOY), title="A title"))
    text = " ".join(console.export_text().split())
    assert all(part in text for part in SHOWN)
    assert "A title" in text and Report(FINDINGS).verdict in text
    for finding in FINDINGS:
        assert finding.path in text and finding.status.value in text
        assert finding.found in text and finding.rule in text and f"write {finding.fix}" in text


AWKWARD = ("a|b `c|d` <eos> x_y _z_ *w* ~~s~~ [q](r) ${u} & &lt; \\| 1 < 2", "one\ntwo | three", "`", "")


def read(text):
    """The cells of every table in a Markdown text, as a reader of Markdown sees them."""
    shown, cell = [], False
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text):
        cell = token.type in ("th_open", "td_open") or (cell and token.type == "inline")
        if token.type == "table_open":
            shown.append([])
        elif token.type == "tr_open":
            shown[-1].append([])
        elif cell and token.type == "inline":
            parts = ("\n" if each.content == "<br>" else each.content for each in token.children or ())
            shown[-1][-1].append("".join(parts))
    return shown


def test_markdown_says_what_was_meant_whatever_stands_in_it():
    findings = tuple(Finding(Status.FAIL, 1, f"p{i}|q", text, text, text) for i, text in enumerate(AWKWARD))
    (table,) = read(markdown(Report(findings)))
    assert table[0] == ["status", "path", "found", "rule", "write"]
    assert [row[2:] for row in table[1:]] == [[text] * 3 for text in AWKWARD]
    assert [row[1] for row in table[1:]] == [finding.path for finding in findings]
    spoilt = "\n".join(line.replace("\\|", "|") for line in markdown(Report(findings)).splitlines())
    assert read(spoilt) != [table]  # without the bars kept from opening cells


def test_the_markdown_form_is_whole_and_what_is_wrong_stands_out():
    text = markdown(Report(FINDINGS, DEPLOY), title="A title")
    tables = read(text)
    cells = [cell for table in tables for row in table for cell in row]
    assert text.startswith("# A title\n") and f"**{Report(FINDINGS).verdict}**" in text
    assert all(part in cells for part in SHOWN) and len(tables) == len(SECTIONS) + 1
    for finding in FINDINGS:
        for part in (finding.path, finding.found, finding.rule, finding.fix):
            assert part in cells
    top = text[: text.index("## 1.")]
    urgent = [finding for finding in FINDINGS if finding.status in (Status.FAIL, Status.WARN)]
    assert all(finding.path in top for finding in urgent) and "pass" not in top and "unknown" not in top
    assert top.index(".fail`") < top.index(".warn`")


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
