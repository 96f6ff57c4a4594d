"""A run whose guard refuses steps: what it skips, how it ends, and how it goes on."""

import math
import os
import signal
from functools import partial

import pytest

from builder.experiments.train import Stopped
from builder.training.guard import Spike
from builder.training.module import Diverged
from builder.training.step import Step
from tests.tiny_run import MOE, checkpoint, only_run, plant, resumed, rows, same, summary, trained

GUARD = ["guard={window: 4}", "trainer.log_every_n_steps=1"]
STATE = ("state_dict", "optimizer_states", "lr_schedulers", "global_step", "tallies", "guard", "averaged")


@pytest.fixture
def spoilt(monkeypatch):
    """Spoils the gradients of some steps, counted from 1, by a factor."""

    def spoil(steps, factor=math.nan):
        whole = Step.backward

        def backward(self, training, batch):
            found = whole(self, training, batch)
            for parameter in training.model.parameters() if training.global_step + 1 in steps else ():
                if parameter.grad is not None:
                    parameter.grad *= factor
            return found

        monkeypatch.setattr(Step, "backward", backward)

    return spoil


def told(path, name):
    return {row["step"]: row[name] for row in rows(path) if name in row}


def finite(path):
    return all(weight.isfinite().all() for weight in checkpoint(path)["state_dict"].values())


def test_a_guard_that_refuses_nothing_changes_nothing(tmp_path):
    one, other = (trained(tmp_path, "trainer.log_every_n_steps=1", *more).path for more in ([], [GUARD[0]]))
    for key in ("state_dict", "optimizer_states", "lr_schedulers"):
        assert same(checkpoint(one)[key], checkpoint(other)[key]), key
    assert told(one, "train/loss") == told(other, "train/loss")
    assert set(told(other, "optim/skipped").values()) == {0.0} and not told(one, "optim/skipped")


@pytest.mark.parametrize("factor", [math.nan, math.inf, 1e4])
def test_a_spoilt_step_is_skipped(tmp_path, spoilt, factor):
    spoilt({7}, factor)
    path = trained(tmp_path, *GUARD).path
    assert summary(path)["status"] == "completed" and finite(path)
    assert told(path, "optim/skipped") == {step: float(step >= 7) for step in range(1, 13)}
    assert {step for step, loss in told(path, "train/loss").items() if loss is None} == {7}
    rates = told(path, "optim/lr")
    assert rates[7] not in (rates[6], rates[8]), "the schedule goes on"


def test_without_a_guard_it_is_taken(tmp_path, spoilt):
    spoilt({7})
    with pytest.raises(Diverged):
        trained(tmp_path)


def test_the_experts_of_a_skipped_step_are_not_balanced(tmp_path, spoilt):
    options = [*GUARD, *MOE, "model.moe.balance.bias_speed=0.1", "schedule=constant", "trainer.max_steps=6"]
    plain = trained(tmp_path, *options, "trainer.max_steps=5").path
    spoilt({6})
    skipped = trained(tmp_path, *options).path
    assert any(name.endswith("preference") for name in checkpoint(plain)["state_dict"])
    assert same(checkpoint(skipped)["state_dict"], checkpoint(plain)["state_dict"])


def test_a_loss_that_is_no_number_is_skipped(tmp_path, monkeypatch):
    whole = Step.backward

    def backward(self, training, batch):
        total, *rest = whole(self, training, batch)
        return (total * (math.nan if training.global_step == 4 else 1.0), *rest)

    monkeypatch.setattr(Step, "backward", backward)
    path = trained(tmp_path, *GUARD).path
    assert told(path, "optim/skipped")[12] == 1 and finite(path)


def test_stopping_ends_the_run_before_the_step(tmp_path, spoilt):
    spoilt({7})
    with pytest.raises(Spike, match=r"guard: .*gradient is nan in step 7.*guard\.action=skip"):
        trained(tmp_path, "guard.action=stop")
    path = only_run(tmp_path)
    assert summary(path)["status"] == "failed" and "step 7" in summary(path)["reason"]
    assert checkpoint(path)["global_step"] == 4


def test_a_run_that_takes_no_step_any_more_ends(tmp_path, spoilt):
    spoilt(range(6, 13))
    with pytest.raises(Spike, match=r"step 9.*4 steps in a row"):
        trained(tmp_path, *GUARD)
    assert finite(only_run(tmp_path))


@pytest.mark.parametrize("step", [6, 7])
def test_cut_short_it_ends_as_the_whole_run(tmp_path, monkeypatch, spoilt, step):
    """Around a step of which only what the guard remembers says that it is too large."""
    spoilt({7, 10}, 30.0)
    options = ["guard={window: 5}", GUARD[1], "ema.decay=0.9"]
    folders = [tmp_path / "whole", tmp_path / "cut"]
    for folder in folders:
        folder.mkdir()
    whole = trained(folders[0], *options).path
    with monkeypatch.context() as patch:
        plant(patch, step, partial(os.kill, os.getpid(), signal.SIGINT))
        with pytest.raises(Stopped):
            trained(folders[1], *options)
    path = resumed(only_run(folders[1])).path
    for key in STATE:
        assert same(checkpoint(path)[key], checkpoint(whole)[key]), key
    assert rows(path) == rows(whole)
    assert told(path, "optim/skipped")[12] == 2
    assert len(checkpoint(path)["guard"]["grad_norm"]) == 5


def test_every_step_of_a_log_window_may_be_skipped(tmp_path, spoilt):
    spoilt({4, 5, 6})
    path = trained(tmp_path, "guard={window: 4}").path  # a line after every third step
    losses = told(path, "train/loss")
    assert [step for step in losses if losses[step] is None] == [6] and told(path, "optim/skipped")[6] == 3
