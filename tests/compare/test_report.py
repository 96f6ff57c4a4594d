"""The W&B report has the same table and verdicts; where it can't be made, it is said what is missing."""

import json
import re
import sys

import pytest

from builder import ArchlabError
from builder.compare import report, scaling
from tests.compare.synthetic import compared, write


@pytest.fixture
def found(tmp_path):
    for layers, loss in ((2, 3.0), (4, 2.0)):
        for seed in (0, 1):
            write(tmp_path / f"{layers}-{seed}", [loss + seed / 10], seed=seed, model__n_layers=layers)
    return compared(tmp_path)


def test_the_report_says_what_the_table_says(found, service):
    pytest.importorskip("wandb_workspaces", reason="W&B's reports take wandb-workspaces: pip install archlab[reports]")
    service.run("r1", "lab")
    address = report.publish(found, scaling.law(found), "ent/lab")
    assert service.unknown == [] and address.startswith("http")
    (view,) = service.views
    text = json.dumps(json.loads(view["spec"]))
    assert (view["entityName"], view["projectName"], view["type"]) == ("ent", "lab", "runs")
    assert "| 1 | 4 | 2 | 2.05 \\u00b1" in text and "| 2 | 2 | 2 | 3.05" in text
    assert "Matched within 1%: parameters: 1,000 in all" in text
    for axis in ("step", "tokens", "flops"):
        assert f"along {axis}" in text


def test_without_the_package_it_says_what_to_install(found, monkeypatch):
    for name in ("wandb_workspaces", "wandb_workspaces.reports", "wandb_workspaces.reports.v2"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ArchlabError, match="pip install wandb-workspaces"):
        report.publish(found, "none", "ent/lab")


def test_without_a_login_it_says_so(found, logged_out):
    pytest.importorskip("wandb_workspaces", reason="W&B's reports take wandb-workspaces: pip install archlab[reports]")
    with pytest.raises(ArchlabError, match=r"report: found 'ent/lab'.*wandb login"):
        report.publish(found, "none", "ent/lab")


def test_no_mark_in_a_value_breaks_the_table(tmp_path):
    for place, name in enumerate(("a|b.txt", "*c*.txt")):
        write(tmp_path / f"{place}", [2.0 + place], data__path=name)
    head, _, *rows = report.configurations(compared(tmp_path)).splitlines()
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)] for line in (head, *rows)]
    assert [line[1:4] for line in cells] == [["#", "path", "seeds"], ["1", r"a\|b.txt", "1"], ["2", r"\*c\*.txt", "1"]]
    assert len({len(line) for line in cells}) == 1
