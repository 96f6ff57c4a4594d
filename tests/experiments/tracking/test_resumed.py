"""A run that is resumed goes on in the W&B run that it began, online and offline, and no row is there twice."""

import json
import os
import signal
import time

import pytest

from builder.experiments.metrics import read_metrics
from builder.experiments.tracking.parts import Part, of_its_own_second, parts, recorded, starts
from builder.experiments.tracking.upload import find, upload
from builder.experiments.train import Stopped
from tests.tiny_run import only_run, plant, resumed, trained
from tests.wandb_log import exit_code

LAST = 9
"""The step after whose row the run is stopped: past the checkpoint of step 8, and past the log line of step 9."""


def stopped(folder, patch, *more):
    """A run that was told to stop after the log line of step LAST, which no checkpoint has."""

    with patch.context() as inner:
        plant(inner, LAST + 1, lambda: [os.kill(os.getpid(), signal.SIGINT) for _ in range(2)])
        with pytest.raises(Stopped):
            trained(folder, *more)
    path = only_run(folder)
    if any(part.offline for part in starts(path)):
        exit_code(path)  # what writes its file may lag behind
    return path


def steps(run):
    return [(row["_step"], row["step"]) for row in run.history]


def test_online(tmp_path, monkeypatch, service):
    path = stopped(tmp_path, monkeypatch, "logger=wandb")
    before = steps(service.only_run())
    assert before == [(step, step) for step in (0, 3, 4, 6, 8, 9)]
    assert service.only_run().state == "failed" and service.only_run().summary["status"] == "interrupted"
    resumed(path)
    run = service.only_run()
    assert steps(run) == [*before, (12, 12)]
    assert (run.state, run.summary["status"]) == ("finished", "completed")
    assert run.name == json.loads((path / "wandb" / "run.json").read_text())["id"]


def test_offline_and_sent_later(tmp_path, monkeypatch, service):
    path = stopped(tmp_path, monkeypatch, "logger=wandb_offline")
    resumed(path)
    first, second = parts(path)
    assert first.id == second.id
    assert (first.last_step(), second.last_step()) == (9, 12)
    assert not service.runs
    (fate,) = upload(find(str(tmp_path)))
    assert fate.there and fate.parts == 2
    run = service.only_run()
    assert steps(run) == [(step, step) for step in (0, 3, 4, 6, 8, 9, 12)]
    assert (run.state, run.summary["status"]) == ("finished", "completed")


def test_rows_that_a_kill_took_are_logged_again(tmp_path, monkeypatch, service):
    path = stopped(tmp_path, monkeypatch, "logger=wandb")
    run = service.only_run()
    run.history, run.summary = run.history[:3], {"_step": 4}
    resumed(path)
    assert steps(service.only_run()) == [(step, step) for step in (0, 3, 4, 6, 8, 9, 12)]
    kept = {row["step"] for row in read_metrics(path / "metrics.jsonl")}
    assert kept == {row["step"] for row in service.only_run().history} - {0}


def test_another_id_is_another_run(tmp_path, monkeypatch, service):
    """The negative control: without the id that it keeps, a run that goes on begins anew."""
    path = stopped(tmp_path, monkeypatch, "logger=wandb")
    (path / "wandb" / "run.json").unlink()
    resumed(path)
    assert len(service.runs) == 2


def test_what_began_offline_goes_on_offline(tmp_path, monkeypatch, service):
    path = stopped(tmp_path, monkeypatch, "logger=wandb_offline")
    config = path / "config.yaml"
    assert "mode: offline" in config.read_text()
    config.write_text(config.read_text().replace("mode: offline", "mode: online"))  # a logger is not of the hash
    resumed(path)
    assert [part.offline for part in parts(path)] == [True, True]
    assert not service.runs


def test_a_part_that_cannot_be_read_is_not_taken_for_empty(tmp_path, monkeypatch):
    path = stopped(tmp_path, monkeypatch, "logger=wandb_offline")
    (part,) = parts(path)
    assert recorded([part], otherwise=7) == 9
    part.log.write_bytes(b"nothing that W&B wrote")
    assert recorded([part], otherwise=7) == 7


def test_two_starts_in_one_second_are_two_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds, whole=time.sleep: slept.append(seconds) or whole(seconds))
    slept = []
    now = Part(tmp_path / f"offline-run-{time.strftime('%Y%m%d_%H%M%S')}-abc")
    of_its_own_second([now])
    assert slept and time.strftime("%Y%m%d_%H%M%S") > now.started
    slept.clear()
    of_its_own_second([now])
    assert not slept, "nothing to wait for"
