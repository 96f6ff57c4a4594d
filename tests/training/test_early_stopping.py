"""A run that Lightning's EarlyStopping ends: how it is composed, what it leaves, and how it goes on."""

import os
import signal
from functools import partial

import pytest

from builder import compose, load
from builder.errors import ArchlabError
from builder.experiments.train import Refused, Stopped
from builder.training.callbacks.watched import Unlogged
from tests.tiny_run import checkpoint, only_run, plant, resumed, rows, same, summary, trained

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


def test_a_metric_that_is_not_logged_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(Refused, match=r"callbacks\.early_stopping\.monitor"):
        trained(tmp_path, STOPPING, "callbacks.early_stopping.monitor=val/los")
    assert not list(tmp_path.glob("out/*"))


@pytest.mark.parametrize("name", ["best", "early_stopping"])
def test_a_metric_that_only_a_validation_shows_to_be_missing_costs_nothing(tmp_path, name):
    """Another's callback may log anything: what is missing is told where the run validates first, and it can go on."""
    other = "+callbacks.mine={_target_: lightning.pytorch.callbacks.Callback}"
    folders = [tmp_path / "wrong", tmp_path / "right"]
    for folder in folders:
        folder.mkdir()
    with pytest.raises(Unlogged) as caught:
        trained(folders[0], STOPPING, other, f"callbacks.{name}.monitor=val/los")
    told = str(caught.value)
    assert (
        told.startswith(f"callbacks.{name}.monitor: found val/los, ") and "train/loss, val/accuracy, val/bits" in told
    )
    assert f"write callbacks.{name}.monitor=val/loss (the checkpoint of step 4 is kept)" in told
    path = only_run(folders[0])
    said = summary(path)
    assert (said["status"], said["reason"]) == ("failed", f"Unlogged: {told}")
    assert checkpoint(path)["global_step"] == 4 and [row["step"] for row in rows(path) if "val/loss" in row] == [4]
    config = path / "config.yaml"
    config.write_text(config.read_text().replace("val/los\n", "val/loss\n"))
    resumed(path)
    whole = trained(folders[1], STOPPING, other).path
    assert rows(path) == rows(whole) and all(same(checkpoint(path)[key], checkpoint(whole)[key]) for key in STATE[:4])
