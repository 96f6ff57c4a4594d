"""Searches: what Optuna asks for is judged, run and told; worse runs are ended; a search that stopped goes on."""

import json
from io import StringIO
from pathlib import Path

import pytest
from pydantic import ValidationError
from rich.console import Console

import builder.sweeps.launched
from builder.errors import ConfigError
from builder.sweeps import plan
from builder.sweeps.locks import SWEEP, held
from builder.sweeps.outcome import Outcome, render
from builder.sweeps.search import Search
from builder.sweeps.spec import SearchSpec
from tests.sweeps.folders import statuses, sweeps
from tests.tiny_run import checkpoint, rows, summary


def test_a_search_chooses_judges_and_tells(sweep, tmp_path):
    """An objective that isn't there costs no trial; what the others reach is told to Optuna."""
    optuna = pytest.importorskip("optuna")
    space = "{seed: [3, 4], optimizer.lr: {low: 1e-4, high: 1e-1, log: true}, objective.name: [next_token, none_such]}"
    code, said = sweep(f"sweep.search={{sampler: random, trials: 4, at_once: 2, seed: 1, space: {space}}}")
    (folder,) = sweeps(tmp_path)
    points = plan.points_of(plan.read(folder))
    backend = optuna.storages.journal.JournalFileBackend(str(folder / "search.journal"))
    study = optuna.load_study(study_name=folder.name, storage=optuna.storages.JournalStorage(backend))
    assert len(points) == len(study.trials) > 4 and {point.status for point in points} == {"planned", "invalid"}, said
    assert [point.status for point in points].count("planned") == 4  # an invalid one is drawn again
    for point, trial in zip(points, study.trials, strict=True):
        if point.status == "invalid":
            assert trial.state.name == "FAIL" and "none_such" in point.reason
        else:
            assert trial.value == min(row["val/loss"] for row in rows(folder / str(point.job)) if "val/loss" in row)
            assert f"optimizer.lr={trial.params['optimizer.lr']}" in point.overrides
    assert code == 1  # for the invalid ones
    assert f"lowest val/loss: {study.best_value:.4g}" in " ".join(said.split())


def test_a_run_that_is_worse_than_others_were_is_pruned(tmp_path):
    pytest.importorskip("optuna")
    search = Search(SearchSpec(space={"seed": {"low": 0, "high": 99}}, trials=9, at_once=7, prune="median"), tmp_path)
    asked = search.ask()
    said = {}
    for number, _ in asked:
        folder = tmp_path / str(number)
        folder.mkdir()
        worse = 1.0 if number < 6 else 9.0
        lines = [{"step": step, "val/loss": worse - step / 100} for step in (4, 8)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        said[number] = search.watch(number, folder)()
        search.tell(number, "pruned" if said[number] else "completed", folder)
    assert [said[number] for number in range(6)] == [None] * 6
    assert said[6] == "val/loss 8.96 at step 4 is worse than what earlier runs had there"
    assert [trial.state.name for trial in search._study.trials] == ["COMPLETE"] * 6 + ["PRUNED"]
    assert search.left == 2


def test_a_search_that_stopped_goes_on_with_what_is_left(sweep, tmp_path):
    optuna = pytest.importorskip("optuna")
    space = "{optimizer.lr: {low: 1e-4, high: 1e-1, log: true}}"
    assert sweep(f"sweep.search={{trials: 1, seed: 1, space: {space}}}")[0] == 0
    (folder,) = sweeps(tmp_path)
    content = plan.read(folder)
    content["spec"]["search"]["trials"] = 2
    (folder / "plan.json").write_text(json.dumps(content))
    first = (folder / "0" / "summary.json").stat().st_mtime_ns
    with held(folder, SWEEP, wait=0):
        code, said = sweep(f"sweep.resume={folder}", tiny=False)
        assert code == 1 and "another sweep is at work" in said
    assert sweep(f"sweep.resume={folder}", tiny=False)[0] == 0
    assert statuses(folder) == ["completed"] * 2 and (folder / "0" / "summary.json").stat().st_mtime_ns == first
    backend = optuna.storages.journal.JournalFileBackend(str(folder / "search.journal"))
    study = optuna.load_study(study_name=folder.name, storage=optuna.storages.JournalStorage(backend))
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 2


def test_a_job_that_is_pruned_is_ended_with_its_checkpoint_and_the_others_run(sweep, tmp_path, monkeypatch):
    def watch(job):
        logged = job.folder.path / "metrics.jsonl"
        return lambda: "worse" if job.point.job == 0 and logged.exists() and logged.read_text() else None

    monkeypatch.setattr(builder.sweeps.launched, "_watch", watch)
    monkeypatch.setattr(builder.sweeps.launched, "LOOK", 0.1)
    code, said = sweep("trainer.max_steps=100000,12", "trainer.val_check_interval=12")
    (folder,) = sweeps(tmp_path)
    assert code == 0 and statuses(folder) == ["pruned", "completed"], said
    assert summary(folder / "0")["reason"] == "worse" and 0 < checkpoint(folder / "0")["global_step"] < 100000
    assert sweep(f"sweep.resume={folder}", tiny=False)[0] == 0 and statuses(folder) == ["pruned", "completed"]


def test_a_metric_that_no_run_logs_or_of_which_more_is_better_is_told(tmp_path):
    pytest.importorskip("optuna")
    space = {"seed": {"low": 0, "high": 99}}
    with pytest.raises(ValidationError, match="more of this one is better"):
        SearchSpec(space=space, metric="val/accuracy")
    search = Search(SearchSpec(space=space, metric="val/los"), tmp_path)
    ((number, _),) = search.ask()
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "metrics.jsonl").write_text('{"step": 4, "val/loss": 1.0}\n')
    search.tell(number, "failed", tmp_path / "0")  # of which nothing can be told
    with pytest.raises(ConfigError) as caught:
        search.tell(number, "completed", tmp_path / "0")
    (problem,) = caught.value.problems
    assert problem.path == "sweep.search.metric" and "val/los" in problem.found and "job 0" in problem.found
    assert problem.rule.endswith("step, val/loss") and problem.fix == "sweep.search.metric=val/loss"


def test_the_best_job_is_the_highest_where_more_is_better():
    def said(metric):
        made = [
            Outcome(job, (), "completed", "", None, {metric: value, "step": 4}) for job, value in ((0, 0.2), (1, 0.7))
        ]
        console = Console(record=True, width=200, file=StringIO())
        console.print(render(Path("sweep"), made))
        return console.export_text()

    assert "lowest val/loss: 0.2 at step 4, job 0" in said("val/loss")
    assert "highest val/accuracy: 0.7 at step 4, job 1" in said("val/accuracy")
