"""A run that was cut short and goes on ends as the run that was never disturbed, bit for bit."""

import os
import shutil
import signal
from functools import partial

import pytest
from rich.console import Console

import builder.experiments.train as training
from builder import load_run
from builder.errors import ArchlabError
from builder.experiments.train import Stopped, resume
from builder.training.module import Training
from tests.tiny_run import checkpoint, only_run, plant, resumed, rows, same, summary, trained, without_probes

from .same_run import assert_same_run

DROPOUT = "model.embedding.dropout=0.2"  # what is drawn in a step must not depend on where a run began


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


def test_dropout_has_an_effect(whole, tmp_path):
    assert not same(rows(trained(tmp_path, "model.embedding.dropout=0").path), rows(whole))


# Between two log lines, on a log line, on a checkpoint with its validation, and on the last step but one.
@pytest.mark.parametrize(
    ("number", "step"),
    [*((signal.SIGINT, step) for step in (1, 5, 6, 8, 11)), (signal.SIGTERM, 5), (signal.SIGUSR1, 5)],
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


def test_a_second_signal_of_a_machine_changes_nothing(tmp_path, monkeypatch):
    """Who warned with SIGUSR1 follows with SIGTERM, and kills when waiting is over."""

    def both():
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)

    plant(monkeypatch, 6, both)
    with pytest.raises(Stopped, match="interrupted by SIGUSR1 after step 6"):
        trained(tmp_path)
    assert checkpoint(only_run(tmp_path))["global_step"] == 6


def test_stopped_before_the_first_checkpoint(whole, tmp_path, monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        plant(patch, 2, interrupt)
        with pytest.raises(Stopped, match=r"no checkpoint was written yet; resume=.* starts again from the first step"):
            trained(tmp_path, DROPOUT)
    path = only_run(tmp_path)
    assert summary(path)["status"] == "interrupted"
    assert signal.getsignal(signal.SIGINT) is before
    assert_same_run(resumed(path).path, whole)


def test_killed_after_the_last_step(whole, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(training, "answer", lambda *_: kill())
        with pytest.raises(Killed):
            trained(tmp_path, DROPOUT)
    path = only_run(tmp_path)
    assert checkpoint(path)["global_step"] == 12 and summary(path)["status"] == "failed"
    assert_same_run(resumed(path).path, whole)
    with pytest.raises(ArchlabError, match="is completed: it stands at step 12 of 12"):
        resumed(path)


@pytest.fixture
def cut_short(tmp_path, monkeypatch):
    """A run that was killed in step 11, with the checkpoints of steps 4 and 8."""
    with monkeypatch.context() as patch:
        plant(patch, 11, kill)
        with pytest.raises(Killed):
            trained(tmp_path, DROPOUT)
    return only_run(tmp_path)


def altered(file):
    """Turns one bit in the middle of a file."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(whole, cut_short, capsys):
    newest = cut_short / "checkpoints/step-000008.ckpt"
    altered(newest)
    with pytest.raises(
        ArchlabError, match=r"last\.ckpt: the checkpoint is damaged .* another one .*: best, step-000004$"
    ):
        load_run(cut_short, "last")
    folder = resume(cut_short, Console())
    out = capsys.readouterr().out
    assert f"{newest}: the checkpoint is damaged (its content doesn't have the sha256" in out
    assert f"going on from step-000004, the one before it; {newest}.damaged is what was damaged" in out
    assert f"going on with {cut_short} after step 4 of 12" in out
    (aside,) = cut_short.glob("checkpoints/*.damaged")
    aside.unlink()
    assert_same_run(folder.path, whole)


def test_where_all_are_damaged_nothing_is_touched(cut_short):
    for step in (4, 8):
        altered(cut_short / f"checkpoints/step-{step:06d}.ckpt")
    before, lines = sorted(cut_short.rglob("*")), rows(cut_short)
    with pytest.raises(ArchlabError, match=r"step-000008\.ckpt: .* damaged [\s\S]*step-000004\.ckpt: .* damaged"):
        resumed(cut_short)
    assert (sorted(cut_short.rglob("*")), rows(cut_short)) == (before, lines)


def test_a_run_that_kept_only_its_last_checkpoint_goes_on(whole, cut_short):
    place = cut_short / "checkpoints"
    shutil.copy(place / "step-000008.ckpt", place / "kept")  # as earlier versions left a run folder
    for file in place.glob("*-*.ckpt"):
        file.unlink()
    (place / "kept").replace(place / "last.ckpt")
    assert load_run(cut_short, "last").report.ok
    path = resumed(cut_short).path
    assert same(checkpoint(path)["state_dict"], checkpoint(whole)["state_dict"]) and rows(path) == rows(whole)


def test_drafts_that_a_kill_left_are_removed(cut_short):
    for name in (".metrics.jsonl.abc.part", "checkpoints/.step-000012.ckpt.abc.part"):
        (cut_short / name).write_text("half")
    (cut_short / "checkpoints/.step-000002.ckpt.part").mkdir()
    path = resumed(cut_short).path
    assert not list(path.rglob("*.part"))


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
