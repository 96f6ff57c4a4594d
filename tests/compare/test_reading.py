"""Folders: every run and every job that never became one is found, whatever state it is in, and nothing stops it."""

import json
import os
import time

import pytest
from omegaconf import OmegaConf

from builder import ArchlabError
from builder.compare.reading import read
from builder.compare.yaml_values import parse
from tests.compare.synthetic import write

TEXTS = (
    "1e-4 1E-4 2e-5 1.0e-4 -3e2 +1e3 .5 1. 12 1_000 0x10 true null ~ nan .nan .inf -.inf yes 2024-01-01 1:30 abc 1e e4"
)


@pytest.mark.parametrize("text", [*TEXTS.split(), "'1e-4'", "[1e-4, 2]", "{a: 1e-4}"])
def test_values_are_read_as_omegaconf_reads_them(text):
    oracle = OmegaConf.to_container(OmegaConf.create(f"x: {text}"))["x"]
    found = parse(f"x: {text}")["x"]
    assert (found, type(found)) == (oracle, type(oracle)) or (found != found and oracle != oracle)


def test_a_rate_that_a_person_wrote_is_a_number(tmp_path):
    config = write(tmp_path / "a") / "config.yaml"
    config.write_text(config.read_text().replace("lr: 0.001", "lr: 1e-3"))
    (run,) = read(str(tmp_path))
    assert run.config["optimizer"]["lr"] == 0.001


def test_runs_are_found_however_deep_and_by_globs(tmp_path):
    write(tmp_path / "exp" / "sweep" / "0")
    write(tmp_path / "exp" / "sweep" / "10")
    write(tmp_path / "exp" / "sweep" / "2")
    write(tmp_path / "other" / "single")
    (tmp_path / "exp" / "sweep" / "0" / "checkpoints").mkdir()
    (tmp_path / "exp" / "sweep" / "0" / "checkpoints" / "best.ckpt").touch()
    names = [run.name for run in read(str(tmp_path))]
    assert names == ["0", "2", "10", "single"]
    assert [run.name for run in read(f"{tmp_path}/e*/sweep/1*")] == ["10"]
    assert [run.name for run in read(f"{tmp_path}/**/sweep")] == ["0", "2", "10"]
    (first,) = read(str(tmp_path / "exp" / "sweep" / "0"))
    assert first.checkpoint == f"{tmp_path}/exp/sweep/0/checkpoints/best.ckpt"


def test_what_lies_within_a_run_is_no_other_run(tmp_path):
    """W&B keeps a config.yaml of its own there."""
    inside = write(tmp_path / "a") / "wandb" / "run-1" / "files"
    inside.mkdir(parents=True)
    (inside / "config.yaml").write_text("seed: {value: 0}\n")
    assert [run.name for run in read(str(tmp_path))] == ["a"]


def test_a_sweep_shows_jobs_that_failed_before_they_were_runs_and_jobs_that_never_began(tmp_path):
    points = [{"job": n, "overrides": [f"model.n_layers={n + 1}", "seed=1"], "status": "planned"} for n in range(3)]
    points.append({"job": None, "overrides": ["model.n_layers=0"], "status": "invalid", "reason": "no"})
    (tmp_path / "plan.json").write_text(json.dumps({"sweep": "s", "points": points}))
    write(tmp_path / "0", model__n_layers=1)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "summary.json").write_text(json.dumps({"status": "failed", "reason": "heads don't divide"}))
    found = {run.name: run for run in read(str(tmp_path))}
    assert {name: run.state for name, run in found.items()} == {"0": "completed", "1": "failed", "2": "not started"}
    assert found["1"].mark == "failed: heads don't divide"
    assert found["1"].typed == {"model.n_layers": 2, "seed": 1} and found["2"].seed == 1
    assert [run.name for run in read(f"{tmp_path}/[0-9]")] == ["0", "1"], "their plan is beside them"


def test_a_run_that_says_nothing_for_long_may_have_been_killed(tmp_path):
    folder = write(tmp_path / "a", status="running")
    (alive,) = read(str(tmp_path))
    assert "killed" not in alive.mark
    for file in folder.iterdir():
        os.utime(file, (time.time() - 7200, time.time() - 7200))
    (silent,) = read(str(tmp_path))
    assert silent.mark == "running at step 100 of 100: nothing written for 2 h 00 min, killed?"


@pytest.mark.parametrize("name", ["config.yaml", "summary.json", "metrics.jsonl"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe{{", b"[1, 2", b"- x\n- y\n", b"null", b"3\n4\n"])
def test_a_damaged_file_is_told_and_stops_nothing(name, content, tmp_path):
    (write(tmp_path / "a") / name).write_bytes(content)
    write(tmp_path / "b")
    damaged, whole = read(str(tmp_path))
    assert whole.mark == "" and whole.end.step == 100
    assert (damaged.mark != "") or damaged.config == {}


def test_a_last_line_cut_short_is_left_out(tmp_path):
    with (write(tmp_path / "a", {1: 3.0, 2: 2.0}) / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "val/lo')
    (run,) = read(str(tmp_path))
    assert [point.value for point in run.series["val/loss"]] == [3.0, 2.0]


@pytest.mark.parametrize(("made", "asked", "said"), [(False, "nowhere", "no folder"), (True, "empty", "no run")])
def test_nothing_found_says_where_it_was_looked_for(made, asked, said, tmp_path):
    if made:
        (tmp_path / asked).mkdir()
    with pytest.raises(ArchlabError, match=f"runs: found '{tmp_path}/{asked}'.*{said}"):
        read(str(tmp_path / asked))
