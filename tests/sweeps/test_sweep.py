"""Whole sweeps: jobs that fail, die or are stopped, a sweep that is killed and gone on with, launchers."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from builder.cli import main
from builder.compose import ROOT
from builder.sweeps import gpus
from recipes import train
from tests.sweeps.folders import statuses, sweeps
from tests.tiny_run import checkpoint, overrides, rows, same, summary

FAULT = "callbacks.fault._target_=tests.sweeps.faulty.Fault"


def test_one_job_that_raises_and_one_that_dies_take_none_with_them(sweep, tmp_path, monkeypatch):
    """And a point that is invalid, and one that is another's double: all are listed, with their reasons.

    One after the other, the jobs see the first GPU of two that aren't there: so does the one after a job that died.
    """
    monkeypatch.setattr(gpus, "visible", lambda: {"GPU-a": "a", "GPU-b": "b"})
    monkeypatch.setattr(gpus.tempfile, "tempdir", str(tmp_path))
    ends = ("callbacks.fault.raises=[1]", "callbacks.fault.dies=[2]")
    code, said = sweep("seed=0,1,2,3,3,-1", FAULT, *ends, "trainer.accelerator=auto")
    (folder,) = sweeps(tmp_path)
    assert code == 1 and "Traceback" not in said
    assert statuses(folder) == ["completed", "failed", "failed", "completed", "duplicate", "invalid"]
    assert sorted(path.name for path in folder.iterdir() if path.name.isdigit()) == ["0", "1", "2", "3"]
    assert summary(folder / "1")["reason"] == "RuntimeError: the third step fails"
    assert (
        "Traceback" in (folder / "1" / "traceback.txt").read_text() and "_raise" in (folder / "1/log.txt").read_text()
    )
    assert "killed by SIGKILL" in summary(folder / "2")["reason"]
    assert ["CUDA_VISIBLE_DEVICES=GPU-a\n" in (folder / f"{job}/log.txt").read_text() for job in range(4)] == [True] * 4
    for text in (
        "the third step fails",
        "killed by SIGKILL",
        "seed: found -1",
        "seed=3 is job 3: the same model and run",
    ):
        assert text in " ".join(said.split())
    assert "2 completed, 2 failed, 1 duplicate, 1 invalid" in said and f"sweep.resume={folder}" in "".join(said.split())


def test_nothing_is_resumed_of_what_was_refused(sweep, tmp_path):
    """By probes, which a plan leaves to the job."""
    code, said = sweep("optimizer.lr=1e9")
    (folder,) = sweeps(tmp_path)
    assert code == 1 and statuses(folder) == ["failed"] and "the checklist fails" in said
    assert "sweep.resume" not in said and "without its probes" in said


def test_after_a_failure_no_other_job_is_started_if_so_asked(sweep, tmp_path):
    code, _ = sweep("seed=0,1,2", FAULT, "callbacks.fault.raises=[0]", "sweep.failed=stop")
    (folder,) = sweeps(tmp_path)
    assert code == 1 and statuses(folder) == ["failed", "not started", "not started"]


def test_an_invalid_point_can_stop_the_sweep(sweep, tmp_path):
    code, said = sweep("seed=0,-1", "sweep.invalid=stop")
    (folder,) = sweeps(tmp_path)
    assert code == 1 and "1 points are invalid" in said and "seed: found -1" in said
    assert not (folder / "0").exists() and not (folder / "jobs.json").exists()


def test_a_dry_sweep_is_a_plan(sweep, tmp_path):
    assert sweep("seed=0,1", "sweep.dry=true")[0] == 0
    code, said = sweep("seed=0,-1", "sweep.dry=true")
    assert code == 1 and "2 points: 1 job, 1 invalid" in said
    assert all(
        sorted(path.name for path in folder.glob("[!.]*")) == ["plan.json", "plan.md"] for folder in sweeps(tmp_path)
    )


def command(tmp_path, *words: str) -> subprocess.Popen:
    typed = [sys.executable, "-m", "recipes.train", "-m", *overrides(tmp_path, *words)]
    with open(tmp_path / "said", "a") as said:
        return subprocess.Popen(typed, cwd=ROOT, stdout=said, stderr=said, start_new_session=True)


def until(true, seconds=60):
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends, "it never came to that"
        time.sleep(0.05)


def test_a_sweep_that_is_killed_is_gone_on_with_and_nothing_runs_twice(sweep, tmp_path):
    """Killed with job 0 done, job 1 under way behind a checkpoint, and job 2 to come; each ends as if left alone."""
    running = command(tmp_path, "seed=0,1,2", FAULT, "callbacks.fault.hangs=[1]", "callbacks.last.every_n_steps=2")
    until(lambda: list(tmp_path.glob("out/main/*/1/checkpoints/last.ckpt")))
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    (folder,) = sweeps(tmp_path)
    first = {path: path.stat().st_mtime_ns for path in (folder / "0").rglob("*") if path.is_file()}
    assert summary(folder / "0")["status"] == "completed" and summary(folder / "1")["status"] == "running"
    assert not (folder / "2").exists()
    config = (folder / "1" / "config.yaml").read_text()
    (folder / "1" / "config.yaml").write_text(config.replace("hangs:\n    - 1", "hangs: []"))  # no part of the hash
    elsewhere = set(Path("outputs").glob("*/*"))
    code, said = sweep(f"sweep.resume={folder}", tiny=False)
    assert code == 0, said
    assert set(Path("outputs").glob("*/*")) == elsewhere, "no folder of a sweep that isn't one"
    assert statuses(folder) == ["completed"] * 3
    assert {path: path.stat().st_mtime_ns for path in first} == first
    assert (
        "going on with" in (folder / "1" / "log.txt").read_text()
        and "after step 2" in (folder / "1/log.txt").read_text()
    )
    assert [row["step"] for row in rows(folder / "1")] == [row["step"] for row in rows(folder / "0")]
    assert sweep("seed=1", "callbacks.last.every_n_steps=2")[0] == 0
    assert same(checkpoint(sweeps(tmp_path)[-1] / "0")["state_dict"], checkpoint(folder / "1")["state_dict"])
    code, said = sweep(f"sweep.resume={folder}", tiny=False)
    assert code == 0 and "job 0 of" not in said  # nothing is left


@pytest.mark.turns(2)
def test_ctrl_c_ends_the_sweep_and_leaves_a_checkpoint(tmp_path):
    many = ("seed=0,1", "trainer.max_steps=100000", "trainer.val_check_interval=100000")
    running = command(tmp_path, *many)
    until(lambda: [path for path in tmp_path.glob("out/main/*/0/metrics.jsonl") if path.read_text()])
    os.killpg(running.pid, signal.SIGINT)
    assert running.wait(60) == 130
    (folder,) = sweeps(tmp_path)
    assert statuses(folder) == ["interrupted", "not started"]
    assert checkpoint(folder / "0")["global_step"] > 0
    assert "Traceback" not in (tmp_path / "said").read_text()


@pytest.mark.turns(2)
def test_a_job_that_another_process_runs_is_left_to_it(sweep, tmp_path):
    running = command(tmp_path, "seed=0", FAULT, "callbacks.fault.hangs=[0]")
    until(lambda: list(tmp_path.glob("out/main/*/0/metrics.jsonl")))
    (folder,) = sweeps(tmp_path)
    code, said = sweep(f"sweep.resume={folder}", tiny=False)
    assert code == 1 and "left to the process that runs it" in said
    assert "another process runs this job" in (folder / "0" / "log.txt").read_text()
    assert summary(folder / "0")["status"] == "running" and running.poll() is None
    os.killpg(running.pid, signal.SIGKILL)


@pytest.mark.turns(2)
@pytest.mark.parametrize("whom", ["sweep", "group"])
def test_sigterm_ends_the_sweep_and_leaves_a_checkpoint(whom, tmp_path):
    """Where all of its processes are told too, the server that jobs are forked from ends at once, and a step lasts."""
    many = ("seed=0,1", "trainer.max_steps=100000", "trainer.val_check_interval=100000")
    many += (FAULT, "callbacks.fault.lingers=[0]") if whom == "group" else ()
    running = command(tmp_path, *many)
    until(lambda: [path for path in tmp_path.glob("out/main/*/0/metrics.jsonl") if path.read_text()])
    (os.killpg if whom == "group" else os.kill)(running.pid, signal.SIGTERM)
    assert running.wait(60) == 130
    (folder,) = sweeps(tmp_path)
    assert statuses(folder) == ["interrupted", "not started"]
    assert checkpoint(folder / "0")["global_step"] > 0
    assert f"\npython -m recipes.train -m sweep.resume={folder}\n" in (tmp_path / "said").read_text()


@pytest.mark.turns(2)
def test_a_job_that_is_told_to_end_ends_alone(tmp_path):
    many = ("seed=0,1", "trainer.val_check_interval=100000", "trainer.max_steps=100000")
    running = command(tmp_path, *many, "callbacks.last.every_n_steps=100000")
    until(lambda: [path for path in tmp_path.glob("out/main/*/0/metrics.jsonl") if path.read_text()])
    (folder,) = sweeps(tmp_path)
    words = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True).stdout.splitlines()[1:]
    parents = {int(line.split()[0]): int(line.split()[1]) for line in words}
    server = [pid for pid, parent in parents.items() if parent == running.pid]
    (job,) = [pid for pid, parent in parents.items() if parent in server]
    os.kill(job, signal.SIGTERM)
    until(lambda: (folder / "1" / "metrics.jsonl").exists() and (folder / "1" / "metrics.jsonl").read_text())
    assert summary(folder / "0")["status"] == "interrupted"
    os.killpg(running.pid, signal.SIGINT)
    assert running.wait(60) == 130 and statuses(folder) == ["interrupted", "interrupted"]


@pytest.mark.turns(2)
def test_a_folder_is_one_sweeps(tmp_path):
    """Two that name the same one: the second is refused before it has planned anything."""
    place = f"hydra.sweep.dir={tmp_path}/out/main/same"
    both = [command(tmp_path, place, "seed=0,1"), command(tmp_path, place, "seed=2,3")]
    codes = [each.wait(120) for each in both]
    assert sorted(codes) == [0, 1]
    right = ["seed=0", "seed=1"] if codes[0] == 0 else ["seed=2", "seed=3"]
    folder = tmp_path / "out" / "main" / "same"
    assert [row["apart"] for row in json.loads((folder / "jobs.json").read_text())] == [[word] for word in right]
    assert statuses(folder) == ["completed"] * 2
    said = (tmp_path / "said").read_text()
    assert "holds something already" in said or "another sweep is at work" in said


def test_a_run_in_the_place_of_another_is_told(sweep, tmp_path):
    assert sweep("seed=0")[0] == 0
    (folder,) = sweeps(tmp_path)
    said = json.loads((folder / "0" / "summary.json").read_text())
    (folder / "0" / "summary.json").write_text(json.dumps(said | {"hash": "0" * 16}))
    code, text = sweep(f"sweep.resume={folder}", tiny=False)
    assert code == 1 and "holds another run" in " ".join(text.split())


@pytest.mark.turns(2)
def test_two_sweeps_at_once_do_not_mix(tmp_path):
    both = [command(tmp_path, "seed=0,1"), command(tmp_path, "seed=2,3")]
    assert [each.wait(120) for each in both] == [0, 0]
    found = {
        folder: [row["apart"] for row in json.loads((folder / "jobs.json").read_text())] for folder in sweeps(tmp_path)
    }
    assert sorted(found.values()) == [[["seed=0"], ["seed=1"]], [["seed=2"], ["seed=3"]]]
    assert all(statuses(folder) == ["completed"] * 2 for folder in found)


def test_what_stands_beside_resume_is_refused(sweep, tmp_path):
    assert sweep("seed=0,1", "sweep.dry=true")[0] == 0
    (folder,) = sweeps(tmp_path)
    code, said = sweep(f"sweep.resume={folder}", "seed=5", tiny=False)
    assert code == 1 and "sweep.resume: found seed=5 beside it" in said
    code, said = sweep("sweep.resume=nowhere", tiny=False)
    assert code == 1 and "found 'nowhere'" in said


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("sweep.dri=true",), "sweep.dri: found true"),
        (("sweep=nan",), "sweep: found nan; one of kv_heads"),
        (("model/attention=1,2",), "no point of the sweep can run"),
        (("sweep.search={space: {seed: 3}}",), "sweep.search.space.seed"),
        (("sweep.search={space: {model.d_model: {low: 8}}}",), "sweep.search.space.model.d_model"),
        (("sweep.search={space: {data.path: [a]}}",), "data.path: found a value on the command line too"),
        (("seed=-1,-2",), "no point of the sweep can run"),
        (("seed=1,2", "sweep.product={seed: [0,1]}"), "seed: found values in the command line and in sweep.product"),
        (("output.experiment=a,b",), "output.experiment: found an axis"),
        (("sweep.conditional=[{when: {nosuch: 1}, product: {seed: [1,2]}}]",), "sweep.conditional.0.when"),
        (("data.path=nowhere.txt", "seed=1,2"), "data.path: found"),
    ],
)
def test_a_wrong_sweep_says_why(words, text, sweep):
    code, said = sweep(*words)
    assert code == 1 and text in said and "Traceback" not in said


def test_a_sweep_is_asked_for_by_its_flag(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train", "sweep.dry=true"])
    with pytest.raises(SystemExit, match="1"):
        main(train.job, "train")
    assert "recipes.train -m sweep.dry=true" in capsys.readouterr().err


@pytest.mark.slow
def test_jobs_at_once_by_joblib(sweep, tmp_path):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    words = ("seed=0,1", FAULT, "callbacks.fault.dies=[1]", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    code, said = sweep(*words)
    (folder,) = sweeps(tmp_path)
    assert code == 1 and statuses(folder) == ["completed", "failed"], said
