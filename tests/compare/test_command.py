"""The command: what it prints, what it writes, what it refuses, and how long five hundred runs take."""

import csv
import json
import os
import time

import pytest

from tests.compare.synthetic import call, write


@pytest.fixture
def two(tmp_path):
    """The best of a is 1 at step 20, its last 2; b stays at 1.5."""
    accuracy = {"val/accuracy": {10: 0.1, 20: 0.5, 30: 0.9}}
    folder = write(tmp_path / "runs/a", {10: 3.0, 20: 1.0, 30: 2.0}, more=accuracy, trainer__max_steps=30)
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "best.ckpt").touch()
    write(tmp_path / "runs/b", {10: 1.5, 20: 1.5, 30: 1.5}, optimizer__lr=2e-3, trainer__max_steps=30)
    return tmp_path


def test_best_and_last_and_where_they_come_from(two, capsys):
    runs, out = two / "runs", two / "out"
    assert call(f"runs={runs}", f"out={out}", "figures=false") == 0
    best = f"best val/loss: 1 at step 20, last 2; {runs}/a, {runs}/a/checkpoints/best.ckpt"
    assert best in capsys.readouterr().out.splitlines(), "a path that is broken can't be taken from there"
    found = json.loads((out / "comparison.json").read_text())
    assert found["ranked"] and found["differing_keys"] == ["optimizer.lr"]
    first, second = found["configurations"]
    assert [(item["rank"], item["values"], item["mean"]) for item in (first, second)] == [
        (1, {"optimizer.lr": 0.001}, 1.0), (2, {"optimizer.lr": 0.002}, 1.5),
    ]  # fmt: skip
    (run,) = first["runs"]
    assert run["run"] == f"{runs}/a" and run["checkpoint"] == f"{runs}/a/checkpoints/best.ckpt"
    assert run["metrics"]["val/loss"] == {"best": 1.0, "best_step": 20, "last": 2.0, "last_step": 30, "at_best": 1.0}
    accuracy = run["metrics"]["val/accuracy"]
    assert accuracy == {"best": 0.9, "best_step": 30, "last": 0.9, "last_step": 30, "at_best": 0.5}
    assert "val/accuracy" not in second["runs"][0]["metrics"], "a gap, and no zero"
    assert call(f"runs={runs}", f"out={out}", "figures=false", "by=last") == 0
    found = json.loads((out / "comparison.json").read_text())
    assert [item["runs"][0]["run"] for item in found["configurations"]] == [f"{runs}/b", f"{runs}/a"]


def test_the_csv_has_a_line_a_run_and_gaps_stay_gaps(two):
    assert call(f"runs={two}/runs", f"out={two}/out", "figures=false") == 0
    with (two / "out" / "runs.csv").open() as file:
        first, second = csv.DictReader(file)
    assert (first["val/loss:best"], first["val/loss:best_step"], first["val/accuracy:at_best"]) == ("1.0", "20", "0.5")
    assert (second["val/loss:best"], second["val/accuracy:best"], second["checkpoint"]) == ("1.5", "", "")
    assert (first["optimizer.lr"], second["optimizer.lr"]) == ("0.001", "0.002")
    with (two / "out" / "configurations.csv").open() as file:
        assert [(line["rank"], line["mean"], line["low"]) for line in csv.DictReader(file)] == [
            ("1", "1.0", ""),
            ("2", "1.5", ""),
        ]


def test_everything_is_written(two, capsys):
    assert call(f"runs={two}/runs", f"out={two}/out", f"diff=a,{two}/runs/b") == 0
    wanted = {"comparison.json", "runs.csv", "configurations.csv", "pairs.csv", "curves.png", "pareto.png", "page.html"}
    assert {path.name for path in (two / "out").iterdir()} == wanted
    assert "optimizer.lr: 0.001 -> 0.002" in (two / "out" / "page.html").read_text().replace("&gt;", ">")
    changes = json.loads((two / "out" / "comparison.json").read_text())["changes"]
    assert changes["changes"] == [] and changes["others"] == ["optimizer.lr: 0.001 -> 0.002"]
    assert "the architectures are the same" in capsys.readouterr().out


def test_diff_needs_no_runs(two, capsys, monkeypatch):
    monkeypatch.chdir(two)
    assert call("diff=runs/a,runs/b") == 0
    assert "What was changed" in capsys.readouterr().out and not (two / "outputs").exists()


def test_a_name_that_two_runs_have_is_no_side_of_a_diff(tmp_path, capsys):
    for sweep in ("one", "two"):
        write(tmp_path / f"runs/{sweep}/0")
    assert call(f"runs={tmp_path}/runs", f"out={tmp_path}/out", "figures=false", f"diff=0,{tmp_path}/runs/two/0") == 1
    err = capsys.readouterr().err
    assert "diff: found '0', which 2 runs are called" in err and f"{tmp_path}/runs/one/0" in err
    assert (
        call(
            f"runs={tmp_path}/runs",
            f"out={tmp_path}/out",
            "figures=false",
            f"diff={tmp_path}/runs/one/0,{tmp_path}/runs/two/0",
        )
        == 0
    )


def test_what_is_not_matched_is_told_with_what_to_write(tmp_path, capsys):
    write(tmp_path / "runs/a")
    write(tmp_path / "runs/b", costs={"params": 2000}, model__n_layers=3)
    assert call(f"runs={tmp_path}/runs", f"out={tmp_path}/out", "figures=false") == 0
    said = capsys.readouterr().out.replace("\n", " ")
    assert "not ranked: not matched: parameters: 1,000 to 2,000 (x 2)" in said and "force=true" in said
    assert json.loads((tmp_path / "out" / "comparison.json").read_text())["ranked"] is False
    assert call(f"runs={tmp_path}/runs", f"out={tmp_path}/out", "figures=false", "force=true") == 0
    assert "ranked by force, though not matched: parameters" in capsys.readouterr().out.replace("\n", " ")


def test_jobs_of_a_sweep_are_listed_with_their_states(tmp_path, capsys):
    """Two of four jobs failed, one of them before it was a run: four lines, and both reasons."""
    points = [{"job": n, "overrides": [f"model.n_layers={n + 1}"], "status": "planned"} for n in range(4)]
    write(tmp_path / "s/0", model__n_layers=1)
    write(tmp_path / "s/1", {}, model__n_layers=2, status="failed", summary={"reason": "ran out of memory"})
    (tmp_path / "s/2").mkdir()
    (tmp_path / "s/2/summary.json").write_text(json.dumps({"status": "failed", "reason": "heads don't divide d_model"}))
    write(tmp_path / "s/3", model__n_layers=4)
    (tmp_path / "s/plan.json").write_text(json.dumps({"points": points}))
    assert call(f"runs={tmp_path}/s", f"out={tmp_path}/out", "figures=false") == 0
    said = capsys.readouterr().out
    assert "4 configurations, 4 runs" in said and said.count("1 failed") == 2
    assert "1: failed" in said and "ran out of memory" in said and "heads don't divide d_model" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], ["runs: found null", "runs=outputs/main"]),
        (["runs=nowhere"], ["runs: found 'nowhere'"]),
        (["runs={runs}", "rank=val/los"], ["rank: found 'val/los'", "rank=val/loss"]),
        (["runs={runs}", "by=middle"], ["by: found 'middle'"]),
        (["runs={runs}", "ranks=val/loss"], ["ranks", "did you mean rank?"]),
        (["runs={runs}", "match=[size]"], ["match.0: found 'size'"]),
        (["runs={runs}", "where=model.n_layers"], ["where: found 'model.n_layers'", "path=value"]),
        (["runs={runs}", "where=[model.n_layer=2]"], ["did you mean model.n_layers?"]),
        (["runs={runs}", "diff=a"], ["diff: found 'a'", "two runs"]),
        (["runs={runs}", "diff=a,nobody"], ["diff: found 'nobody'"]),
        (["runs={runs}", "out={runs}/a/config.yaml"], ["out: ", "choose another folder"]),
        (["runs=wandb:me"], ["write wandb:entity/project"]),
        (["runs={runs}", "report=me"], ["report: found 'me'"]),
    ],
)
def test_what_makes_no_sense_is_refused(words, said, two, capsys):
    assert call(*(word.format(runs=two / "runs") for word in words)) == 1
    err = capsys.readouterr().err
    assert [part for part in said if part not in err] == [] and "Traceback" not in err


def test_five_hundred_runs_take_seconds(tmp_path):
    """Reading, grouping, tests, tables, figures and page: in the process's own time, so that others don't count."""
    for n in range(500):
        layers, width, seed = 1 + n // 5 % 10, 64 * (1 + n // 50), n % 5
        loss = {step: 2 + 1 / (layers * width) + 1 / step + seed / 1000 for step in range(2, 101, 2)}
        values = {"model__n_layers": layers, "model__d_model": width}
        write(tmp_path / f"runs/{n}", loss, seed=seed, costs={"params": 1000 * layers * width}, **values)
    started = time.process_time()
    assert call(f"runs={tmp_path}/runs", f"out={tmp_path}/out", "match=[tokens,data]") == 0
    assert time.process_time() - started < 10
    found = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert len(found["configurations"]) == 100 and all(item["seeds"] == 5 for item in found["configurations"])
    assert os.path.getsize(tmp_path / "out" / "page.html") < 20e6
