"""A job whose time is up is put back into the queue with its run saved, and goes on with it when it starts again."""

import os
import signal
from functools import partial

import pytest

from builder.experiments import slurm
from builder.experiments.train import Stopped
from tests.tiny_run import checkpoint, only_run, plant, rows, same, spec_of, summary, trained

NAMED = "output.name=named"


@pytest.fixture
def queue(tmp_path, monkeypatch):
    """A job, and an scontrol that writes down what it is asked for."""
    for name in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "bin"
    home.mkdir()
    (home / "scontrol").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    (home / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    return tmp_path / "asked"


def stopped(tmp_path, monkeypatch, number, *more) -> str:
    """What a run says that got a signal in step 5."""
    with monkeypatch.context() as patch:
        plant(patch, 5, partial(os.kill, os.getpid(), number))
        with pytest.raises(Stopped) as stop:
            trained(tmp_path, *more)
    return str(stop.value)


@pytest.mark.parametrize("more", [(), (NAMED,)], ids=["unnamed", "named"])
def test_preempted_requeued_and_gone_on_with(tmp_path, monkeypatch, queue, more):
    (tmp_path / "undisturbed").mkdir()
    whole = trained(tmp_path / "undisturbed", *more).path
    said = stopped(tmp_path, monkeypatch, signal.SIGUSR1, *more)
    path = only_run(tmp_path)
    assert said.startswith("interrupted by SIGUSR1 after step 5; scontrol requeue 77: it goes on")
    assert queue.read_text() == "requeue 77\n"
    assert summary(path)["status"] == "interrupted"
    assert summary(path)["reason"] == "interrupted by SIGUSR1 after step 5"
    assert checkpoint(path)["global_step"] == 5
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert trained(tmp_path, *more).path == path, "the very command of the job script, once more"
    assert rows(path) == rows(whole) and summary(path)["status"] == "completed"
    assert same(checkpoint(path)["state_dict"], checkpoint(whole)["state_dict"])
    before = summary(path)
    assert trained(tmp_path, *more).path == path, "what is completed isn't trained again"
    assert summary(path) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_other_signals_requeue_nothing(tmp_path, monkeypatch, queue, number):
    assert "scontrol" not in stopped(tmp_path, monkeypatch, number)
    assert not queue.exists()


def test_outside_of_slurm_the_signal_stops_the_run(tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    said = stopped(tmp_path, monkeypatch, signal.SIGUSR1)
    assert said == f"interrupted by SIGUSR1 after step 5; go on with resume={only_run(tmp_path)}"


def test_an_element_of_an_array_is_requeued_alone(queue, monkeypatch):
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "70")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    assert slurm.requeue() == "scontrol requeue 70_3: it goes on when the job starts again"
    assert queue.read_text() == "requeue 70_3\n"


@pytest.mark.parametrize(
    ("script", "fault"), [("echo not allowed >&2; exit 1", "not allowed"), ("exit 3", "exit code 3"), (None, "No such")]
)
def test_a_queue_that_refuses_is_told(queue, tmp_path, monkeypatch, script, fault):
    if script is None:
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        (tmp_path / "bin/scontrol").write_text(f"#!/bin/sh\n{script}\n")
    said = slurm.requeue()
    assert said.startswith("scontrol requeue 77 failed (") and fault in said and said.endswith("submit it again")


def test_whose_run_a_job_goes_on_with(tmp_path, monkeypatch, queue):
    path = trained(tmp_path, NAMED, "trainer.max_steps=2", "trainer.val_check_interval=2").path
    spec = spec_of(tmp_path, NAMED, "trainer.max_steps=2", "trainer.val_check_interval=2")
    assert slurm.begun(spec) is None, "the first start of a job"
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    found = slurm.begun(spec)
    assert found is not None and found.path == path
    other = ("trainer.max_steps=2", "trainer.val_check_interval=2", "seed=1")
    assert slurm.begun(spec_of(tmp_path, *other)) is None, "another config"
    monkeypatch.setenv("SLURM_JOB_ID", "78")
    assert slurm.begun(spec) is None, "another job"
