"""A run that Lightning's EarlyStopping ends: how it is composed, what it leaves, and how it goes on."""

import os
import signal
from functools import partial

import pytest

from builder import compose, load
from builder.errors import ArchlabError
from builder.experiments.train import Stopped
from tests.tiny_run import checkpoint, only_run, plant, resumed, rows, same, spec_of, summary, trained

STOPPING = "callbacks=[default,early_stopping]"
NEVER_BETTER = [  # the first of the validations, after steps 4, 8 and 12, is the best
    STOPPING,
    "callbacks.early_stopping.patience=1",
    "callbacks.early_stopping.min_delta=10.0",
]
STATE = ("state_dict", "optimizer_states", "lr_schedulers", "global_step", "callbacks")


def test_it_stands_beside_the_checkpoints():
    assert list(load(compose([STOPPING])).callbacks) == ["best", "last", "early_stopping"]
    assert list(load(compose([])).callbacks) == ["best", "last"]


def test_a_run_ends_where_its_loss_no_longer_falls(tmp_path):
    path = trained(tmp_path, *NEVER_BETTER).path
    said = summary(path)
    assert (said["status"], said["step"], said["best"]["step"]) == ("completed", 8, 8)
    assert said["reason"].startswith("stopped early after step 8 of 12: ") and "val/loss" in said["reason"]
    assert checkpoint(path)["global_step"] == 8
    assert [row["step"] for row in rows(path) if "val/loss" in row] == [4, 8]
    assert (path / "samples/step-8.txt").is_file()
    with pytest.raises(ArchlabError, match=r"is completed: it stands at step 8 of 12, .*did not improve"):
        resumed(path)


def test_a_run_whose_loss_falls_goes_to_its_end(tmp_path):
    said = summary(trained(tmp_path, STOPPING).path)
    assert (said["status"], said["step"], said["reason"]) == ("completed", 12, None)


def test_a_run_that_was_cut_short_stops_where_the_whole_one_does(tmp_path, monkeypatch):
    folders = [tmp_path / "whole", tmp_path / "cut"]
    for folder in folders:
        folder.mkdir()
    whole = trained(folders[0], *NEVER_BETTER).path
    with monkeypatch.context() as patch:
        plant(patch, 5, partial(os.kill, os.getpid(), signal.SIGINT))
        with pytest.raises(Stopped, match="after step 5"):
            trained(folders[1], *NEVER_BETTER)
    path = resumed(only_run(folders[1])).path  # which would go to step 12 if it had forgotten the first validation
    for key in STATE:
        assert same(checkpoint(path)[key], checkpoint(whole)[key]), key
    assert rows(path) == rows(whole)
    assert summary(path)["reason"] == summary(whole)["reason"]


def test_a_metric_that_is_not_logged_is_named(tmp_path):
    with pytest.raises(RuntimeError, match="val/los`"):
        trained(tmp_path, STOPPING, "callbacks.early_stopping.monitor=val/los")
    assert "val/los" in summary(only_run(tmp_path))["reason"]
    assert spec_of(tmp_path, STOPPING).callbacks["early_stopping"]["monitor"] == "val/loss"
