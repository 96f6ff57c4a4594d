"""W&B beside a run: one run each, closed however it ends, with nested config, ledger and axes; never the run's ruin."""

import os
import signal
from functools import partial

import pytest
import wandb

from builder.experiments.train import Stopped
from tests.tiny_run import MOE, only_run, plant, rows, summary, trained
from tests.wandb_log import exit_code, items, of_kind

WANDB = "logger=wandb_offline"


def test_a_completed_run_and_one_after_it(tmp_path):
    first = trained(tmp_path, WANDB, "output.name=one", "output.tags=[small]").path
    assert wandb.run is None
    second = trained(tmp_path, WANDB, "output.name=two", "trainer.max_steps=6").path
    for path in (first, second):
        assert len(list(path.glob("wandb/offline-run-*"))) == 1
        assert exit_code(path) == 0
    run = of_kind(first, "run")[0]
    assert (run.project, run.run_group, run.display_name, list(run.tags)) == ("archlab", "main", "one", ["small"])
    config = items([part for record in of_kind(first, "config") for part in record.update] + list(run.config.update))
    assert config["model"]["attention"]["n_heads"] == 2
    assert config["optimizer"]["weight_decay"] == 0.1
    said = items(part for record in of_kind(first, "summary") for part in record.update)
    assert said["status"] == "completed"
    assert {key: said[key] for key in said if key.startswith("ledger/")} == summary(first)["ledger"]
    for path, ends in ((first, [4, 8, 12]), (second, [4, 6])):
        history = [items(record.item) for record in of_kind(path, "history")]
        validations = [row for row in history if "val/loss" in row]
        assert [(row["step"], row["tokens"]) for row in validations] == [(end, end * 64) for end in ends]
        losses = [row["val/loss"] for row in rows(path) if "val/loss" in row]
        assert [row["val/loss"] for row in validations] == losses
    axes = [metric.step_metric for metric in of_kind(first, "metric") if metric.glob_name == "*"]
    assert axes[-1] == "step"  # after Lightning's own: the last one counts


def test_routing_is_there_as_numbers_and_as_a_picture(tmp_path):
    path = trained(tmp_path, WANDB, *MOE).path
    exit_code(path)
    history = [items(record.item) for record in of_kind(path, "history")]
    lines = [row for row in history if "moe/all/entropy" in row]
    figures = [{key: row[key] for key in row if key.startswith("moe/")} for row in rows(path) if "moe/0/dead" in row]
    assert [{key: row[key] for key in figures[0]} for row in lines] == figures
    assert [(row["step"], row["tokens"]) for row in lines] == [(step, step * 64) for step in (3, 6, 9, 12)]
    pictures = [row for row in history if "moe/load/filenames" in row]
    assert [row["step"] for row in pictures] == [4, 8, 12], "at each validation; the last one is also the end"
    (file,) = path.glob(f"wandb/offline-run-*/files/{pictures[-1]['moe/load/filenames'][0]}")
    assert file.read_bytes() == (path / "moe_load.png").read_bytes()


def test_without_experts_there_is_no_routing(tmp_path):
    path = trained(tmp_path, WANDB, "trainer.max_steps=4").path
    exit_code(path)
    keys = {key for record in of_kind(path, "history") for key in items(record.item)}
    assert "val/loss" in keys and not any(key.startswith("moe/") for key in keys)


@pytest.mark.parametrize(
    ("action", "error", "status"),
    [
        (partial(os.kill, os.getpid(), signal.SIGINT), Stopped, "interrupted"),
        (lambda: 1 / 0, ZeroDivisionError, "failed"),
    ],
    ids=["interrupted", "failed"],
)
def test_closed_however_it_ends(tmp_path, monkeypatch, action, error, status):
    plant(monkeypatch, 5, action)
    with pytest.raises(error):
        trained(tmp_path, WANDB)
    assert wandb.run is None
    path = only_run(tmp_path)
    assert exit_code(path) == 1
    said = items(part for record in of_kind(path, "summary") for part in record.update)
    assert said["status"] == summary(path)["status"] == status


def test_a_planted_fault_is_the_reason(tmp_path, monkeypatch):
    def fault():
        raise ValueError("a planted fault")

    plant(monkeypatch, 5, fault)
    with pytest.raises(ValueError, match="a planted fault"):
        trained(tmp_path)
    said = summary(only_run(tmp_path))
    assert (said["status"], said["reason"]) == ("failed", "ValueError: a planted fault")


def test_no_logger_no_folder(tmp_path):
    assert not (trained(tmp_path, "logger=none").path / "wandb").exists()


@pytest.mark.parametrize("error", [wandb.errors.CommError("no network"), wandb.errors.UsageError("no key")], ids=repr)
def test_a_run_survives_a_wandb_that_cannot_start(tmp_path, monkeypatch, capsys, error):
    def refuse(*args, **kwargs):
        raise error

    monkeypatch.setattr(wandb, "init", refuse)
    path = trained(tmp_path, WANDB).path
    said = capsys.readouterr().err
    assert "W&B did not start" in said
    assert str(error) in said
    assert f"{path}/metrics.jsonl" in said
    assert summary(path)["status"] == "completed"
    assert rows(path)[-1]["step"] == 12


def test_a_run_survives_a_wandb_that_fails_while_it_trains(tmp_path, monkeypatch, capsys):
    calls = []

    def broken(self, *args, **kwargs):
        calls.append(args)
        raise BrokenPipeError("the service is gone")

    monkeypatch.setattr(wandb.Run, "log", broken)
    path = trained(tmp_path, WANDB, *MOE).path
    said = capsys.readouterr().err
    assert len(calls) > 5
    assert said.count("W&B fails (BrokenPipeError: the service is gone); the run goes on") == 1, "of the first one"
    assert f"{path}/metrics.jsonl has every metric" in said
    assert summary(path)["status"] == "completed" and rows(path)[-1]["step"] == 12


def test_a_signal_in_the_midst_of_wandb_is_not_taken_for_its_fault(tmp_path, monkeypatch):
    def asked(self, row, **kwargs):
        if row["step"] > 0:  # the checklist is logged before the first step
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(wandb.Run, "log", asked)
    with pytest.raises(Stopped, match="stopped at once"):
        trained(tmp_path, WANDB)


def test_a_wandb_that_fails_at_the_end_is_not_the_runs_end(tmp_path, monkeypatch, capsys):
    ends = wandb.Run.finish

    def broken(self, *args, **kwargs):
        ends(self, *args, **kwargs)
        raise TimeoutError("nobody answers")

    monkeypatch.setattr(wandb.Run, "finish", broken)
    path = trained(tmp_path, WANDB).path
    assert "W&B fails (TimeoutError: nobody answers); the run goes on" in capsys.readouterr().err
    assert summary(path)["status"] == "completed"


def test_the_end_waits_for_the_server_only_so_long(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_FINISH_TIMEOUT", raising=False)
    seen = []
    ends = wandb.Run.finish
    monkeypatch.setattr(
        wandb.Run, "finish", lambda self, **words: seen.append(self.settings.finish_timeout) or ends(self, **words)
    )
    trained(tmp_path, WANDB, "trainer.max_steps=2")
    monkeypatch.setenv("WANDB_FINISH_TIMEOUT", "7")
    trained(tmp_path, WANDB, "trainer.max_steps=2")
    assert seen[0] == 300 and seen[1] != 300, "what the environment says, W&B reads itself, once in a process"
