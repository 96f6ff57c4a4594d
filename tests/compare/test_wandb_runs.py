"""Runs in W&B are the same as in their folders, and what can't be reached is said, soon."""

import json
import math
from types import SimpleNamespace

import pytest

from builder import ArchlabError
from builder.compare.reading import read as read_folders
from builder.compare.wandb_runs import read
from tests.compare.synthetic import CORPUS, COSTS, call, config
from tests.tiny_run import trained, without_probes


def test_a_run_is_the_same_as_in_its_folder(service, tmp_path, monkeypatch):
    without_probes(monkeypatch)
    trained(tmp_path, "logger=wandb", "logger.wandb.project=lab", "output.name=first")
    (here,), (there,) = read_folders(str(tmp_path / "out")), read("ent/lab")
    assert service.unknown == []
    assert there.where.startswith("wandb:ent/lab/")
    for what in ("name", "state", "costs", "corpus", "seed", "planned", "short"):
        assert getattr(there, what) == getattr(here, what), what
    assert there.config == {**here.config, "logger": there.config["logger"]}
    assert set(there.series) >= set(here.series)
    for metric, points in here.series.items():
        assert there.series[metric] == [(p.step, p.tokens, p.flops, pytest.approx(p.value)) for p in points], metric


def fake(rows, state="finished", summary=None, **more):
    run = SimpleNamespace(id="1", name="one", state=state, summary=summary or {}, config={"seed": 0, "_wandb": {}})
    run.scan_history = lambda: iter(rows)
    vars(run).update(more)
    return SimpleNamespace(runs=lambda project, order: [run])


def test_a_stranger_to_archlab_is_read_by_lightnings_steps_or_wandbs():
    (run,) = read("e/p", fake([{"_step": 3, "trainer/global_step": 10, "val/loss": 2.0, "step": None}]))
    assert [(point.step, point.value) for point in run.series["val/loss"]] == [(10, 2.0)]
    (run,) = read("e/p", fake([{"_step": 3, "_runtime": 1.5, "val/loss": "NaN", "x": None, "t": {"_type": "table"}}]))
    assert list(run.series) == ["val/loss"] and math.isnan(run.series["val/loss"][0].value)
    assert run.config == {"seed": 0}


@pytest.mark.parametrize(
    ("state", "summary", "found"),
    [
        ("finished", {}, "completed"),
        ("crashed", {"status": "running"}, "failed"),
        ("crashed", {}, "failed"),
        ("finished", {"status": "interrupted"}, "interrupted"),
        ("running", {"status": "running"}, "running"),
    ],
)
def test_states(state, summary, found):
    assert read("e/p", fake([], state, summary))[0].state == found


def test_costs_are_read_nested_or_not():
    for summary in ({"ledger/params": 7}, {"ledger": {"params": 7}}):
        assert read("e/p", fake([], summary=summary))[0].costs == {"params": 7}


@pytest.mark.parametrize("name", ["", "project", "/project", "entity/", "a/b/c"])
def test_a_name_that_is_no_project_is_refused(name):
    with pytest.raises(ArchlabError, match="write wandb:entity/project"):
        read(name)


def test_a_project_without_runs_and_a_service_that_refuses(service):
    with pytest.raises(ArchlabError, match="runs: 'wandb:ent/nothing'"):
        read("ent/nothing")
    service.broken = True
    with pytest.raises(ArchlabError, match=r"can't be read.*wandb login"):
        read("ent/lab")


def test_without_a_key(logged_out):
    with pytest.raises(ArchlabError, match=r"can't be read.*wandb login"):
        read("ent/lab")


def put(service, name, loss, **values):
    """A run that the service has: a config, a summary with its costs, and rows."""
    run = service.run(name, "lab")
    run.config = {key: {"value": value} for key, value in config(**values).items()}
    run.summary = {f"ledger/{key}": count for key, count in COSTS.items()} | {"corpus": CORPUS, "status": "completed"}
    run.history = [
        {"_step": step, "step": step, "tokens": step * 10, "flops": step * 60, "val/loss": value}
        for step, value in loss.items()
    ]
    run.state = "finished"


def test_the_command_compares_a_project_and_makes_its_report(service, tmp_path, capsys):
    for seed in (0, 1):
        put(service, f"a{seed}", {50: 3.0, 100: 2.0 + seed / 10}, seed=seed, model__n_layers=2)
        put(service, f"b{seed}", {50: 1.0 + seed / 10, 100: 3.0}, seed=seed, model__n_layers=4)
    assert call("runs=wandb:ent/lab", f"out={tmp_path}", "figures=false", "where=[model.n_layers=2|4]") == 0
    said = capsys.readouterr().out.replace("\n", " ")
    assert "2 configurations, 4 runs" in said and "best val/loss: 1 at step 50, last 3; wandb:ent/lab/b0" in said
    found = json.loads((tmp_path / "comparison.json").read_text())
    assert [(item["values"], item["seeds"]) for item in found["configurations"]] == [
        ({"model.n_layers": 4}, 2),
        ({"model.n_layers": 2}, 2),
    ]
    assert ("W&B report http" in said) == (len(service.views) == 1) != ("no W&B report: report: found no" in said)
    assert service.unknown == []
