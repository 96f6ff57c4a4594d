"""A run that was cut short and goes on ends as the run that was never disturbed, bit for bit."""

import os
import signal
from functools import partial

import pytest

from builder.errors import ArchlabError
from builder.experiments.train import Stopped
from builder.training.module import Training
from tests.tiny_run import checkpoint, only_run, plant, resumed, rows, same, summary, trained, without_probes

DROPOUT = "model.embedding.dropout=0.2"  # what is drawn in a step must not depend on where a run began
STATE = ("state_dict", "optimizer_states", "lr_schedulers", "global_step", "callbacks")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory):
    """The run that nothing disturbs."""
    with pytest.MonkeyPatch.context() as patch:
        without_probes(patch)
        return trained(tmp_path_factory.mktemp("whole"), DROPOUT).path


class Killed(BaseException):
    """Ends a run on the spot, as a kill would: nothing of ours handles it."""


def kill():
    raise Killed


def assert_same_run(path, whole):
    for name in ("last", "best"):
        ours, theirs = checkpoint(path, name), checkpoint(whole, name)
        for key in STATE:
            assert same(ours[key], theirs[key]), (name, key)
    assert rows(path) == rows(whole)
    assert summary(path)["status"] == "completed"
    assert summary(path)["best"] == summary(whole)["best"]
    assert summary(path)["reason"] is None


def test_dropout_has_an_effect(whole, tmp_path):
    assert not same(rows(trained(tmp_path, "model.embedding.dropout=0").path), rows(whole))


# Between two log lines, on a log line, on a checkpoint with its validation, and on the last step but one.
@pytest.mark.parametrize(
    ("number", "step"), [*((signal.SIGINT, step) for step in (1, 5, 6, 8, 11)), (signal.SIGTERM, 5)]
)
def test_interrupted_and_resumed_is_the_whole_run(whole, tmp_path, monkeypatch, number, step):
    with monkeypatch.context() as patch:
        plant(patch, step, partial(os.kill, os.getpid(), number))
        with pytest.raises(Stopped, match=f"after step {step}; go on with resume="):
            trained(tmp_path, DROPOUT)
    path = only_run(tmp_path)
    assert checkpoint(path)["global_step"] == step
    assert summary(path)["status"] == "interrupted"
    assert rows(path) == [row for row in rows(whole) if row["step"] <= step]
    assert_same_run(resumed(path).path, whole)


@pytest.mark.parametrize(("step", "last"), [(7, 4), (9, 8)])
def test_killed_between_checkpoints(whole, tmp_path, monkeypatch, step, last):
    with monkeypatch.context() as patch:
        plant(patch, step, kill)
        with pytest.raises(Killed):
            trained(tmp_path, DROPOUT)
    path = only_run(tmp_path)
    assert checkpoint(path)["global_step"] == last
    assert rows(path) == [row for row in rows(whole) if row["step"] < step]
    (path / "metrics.jsonl").open("a").write('{"step": 9, "tok')  # a line cut short
    assert_same_run(resumed(path).path, whole)


def test_killed_while_validating(whole, tmp_path, monkeypatch):
    validated = Training.on_validation_epoch_end
    with monkeypatch.context() as patch:
        patch.setattr(
            Training, "on_validation_epoch_end", lambda self: kill() if self.global_step == 8 else validated(self)
        )
        with pytest.raises(Killed):
            trained(tmp_path, DROPOUT)
    path = only_run(tmp_path)
    assert checkpoint(path)["global_step"] == 4  # a checkpoint of step 8 would claim that its validation was done
    assert_same_run(resumed(path).path, whole)


def test_interrupted_twice(whole, tmp_path, monkeypatch):
    for step in (2, 7):
        with monkeypatch.context() as patch:
            plant(patch, step, partial(os.kill, os.getpid(), signal.SIGINT))
            with pytest.raises(Stopped):
                resumed(only_run(tmp_path)) if step == 7 else trained(tmp_path, DROPOUT)
    assert_same_run(resumed(only_run(tmp_path)).path, whole)


def test_a_second_signal_stops_at_once(tmp_path, monkeypatch):
    def twice():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        plant(patch, 6, twice)
        with pytest.raises(Stopped, match="stopped at once; go on with") as stop:
            trained(tmp_path)
    assert stop.value.exit_code == 130
    path = only_run(tmp_path)
    assert summary(path)["status"] == "interrupted"
    assert checkpoint(path)["global_step"] == 4
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_stopped_before_the_first_checkpoint(tmp_path, monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    plant(monkeypatch, 2, interrupt)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Stopped, match="no checkpoint was written yet"):
        trained(tmp_path)
    assert summary(only_run(tmp_path))["status"] == "interrupted"
    assert signal.getsignal(signal.SIGINT) is before


def test_a_failed_run_gives_the_signals_back(tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    plant(monkeypatch, 2, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trained(tmp_path)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_changed_data_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        plant(patch, 5, partial(os.kill, os.getpid(), signal.SIGINT))
        with pytest.raises(Stopped):
            trained(tmp_path)
    path = only_run(tmp_path)
    before = rows(path)
    with (tmp_path / "text.txt").open("a") as text:
        text.write("and one more line")
    with pytest.raises(ArchlabError, match="the data changed since"):
        resumed(path)
    assert rows(path) == before
