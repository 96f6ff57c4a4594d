"""Checkpoints: under the model's own names, readable by anyone, whole or not there, the best one truly the best."""

import errno
import math
import os
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from builder import build, load_run
from builder.disk import DiskFull
from builder.errors import ArchlabError, ConfigError
from builder.experiments.folder import RunFolder
from builder.training.callbacks import checkpoint as callbacks
from builder.training.checkpoint import AtomicIO, read
from builder.training.module import Training
from builder.training.seal import Sealing
from tests.tiny_run import checkpoint, only_run, resumed, rows, same, spec_of, summary, trained


def test_names_are_the_models_own_and_the_config_is_named(tmp_path):
    path, spec = trained(tmp_path).path, spec_of(tmp_path)
    for name in ("best", "last"):
        contents = checkpoint(path, name)  # with weights_only=True
        assert contents["state_dict"].keys() == build(spec.model, device="meta").state_dict().keys()
        assert contents["config_hash"] == spec.hash
        assert contents["global_step"] == 12
    assert kept(path) == ["best.ckpt", "last.ckpt", "step-000008.ckpt", "step-000012.ckpt"]
    assert os.readlink(path / "checkpoints/last.ckpt") == "step-000012.ckpt"


def kept(path):
    return sorted(file.name for file in (path / "checkpoints").iterdir())


@pytest.mark.parametrize(("count", "steps"), [(1, [12]), (3, [8, 10, 12])])
def test_the_newest_are_kept(tmp_path, count, steps):
    path = trained(tmp_path, f"callbacks.last.keep={count}", "callbacks.last.every_n_steps=2").path
    assert kept(path)[2:] == [f"step-{step:06d}.ckpt" for step in steps]
    assert checkpoint(path)["global_step"] == 12
    for step in steps:
        assert checkpoint(path, f"step-{step:06d}")["global_step"] == step
        assert load_run(path, f"step-{step:06d}").report.ok


def test_a_compiled_run_writes_the_same_checkpoint(tmp_path, monkeypatch):
    # RMSNorm and rotary positions take other roundings where they aren't compiled
    alike = ("model/norm=layernorm", "model/position=sinusoidal")
    short = ("trainer.max_steps=3", "trainer.val_check_interval=3", *alike)
    plain = trained(tmp_path, *short).path
    calls = []

    def compiled(function, backend):
        calls.append(function)
        return compile_with(function)

    compile_with = partial(torch.compile, backend="eager")
    monkeypatch.setattr(torch, "compile", compiled)
    path = trained(tmp_path, *short, "compile=true").path
    assert len(calls) == 1
    assert same(checkpoint(path)["state_dict"], checkpoint(plain)["state_dict"])
    assert rows(path) == rows(plain)
    assert load_run(path, "last").spec.compile


class Trainer(SimpleNamespace):
    """As much of a trainer as Best looks at."""

    sanity_checking = False
    strategy = SimpleNamespace(broadcast=lambda value: value)

    def see(self, best: callbacks.Best, step: int, value: float | None) -> None:
        self.global_step = step
        self.callback_metrics = {} if value is None else {"val/loss": torch.tensor(value)}
        best.on_validation_end(self, None)  # type: ignore[arg-type]


@pytest.fixture
def saved(monkeypatch):
    """The steps at which something was saved."""
    steps = []
    monkeypatch.setattr(callbacks, "save", lambda trainer, name: steps.append((trainer.global_step, name)))
    return steps


def test_best_keeps_the_lowest_and_nan_never_wins(saved):
    best, trainer = callbacks.Best("val/loss"), Trainer()
    for step, value in enumerate([math.nan, None, 3.0, 3.0, math.nan, 4.0, 2.0, math.inf, -math.nan], 1):
        trainer.see(best, step, value)
    assert saved == [(3, "best"), (7, "best")]
    assert (best.value, best.step) == (2.0, 7)
    again = callbacks.Best("val/loss")
    again.load_state_dict(best.state_dict())
    trainer.see(again, 20, 2.5)
    trainer.see(again, 21, 1.5)
    assert saved[2:] == [(21, "best")]


def test_the_best_is_the_highest_where_that_is_asked_for(saved):
    best, trainer = callbacks.Best("val/loss", mode="max"), Trainer()
    for step, value in enumerate([math.nan, -2.0, None, -3.0, -1.0, math.nan, -math.inf], 1):
        trainer.see(best, step, value)
    assert saved == [(2, "best"), (5, "best")]
    assert best.value == -1.0


def test_best_is_from_the_step_that_was_best(tmp_path, monkeypatch):
    losses = iter([3.0, 2.0, 2.5])
    monkeypatch.setattr(Training, "on_validation_epoch_end", lambda self: self.log("val/loss", next(losses)))
    path = trained(tmp_path).path
    assert checkpoint(path, "best")["global_step"] == 8
    assert checkpoint(path, "last")["global_step"] == 12


class Clock:
    """A clock that a test turns."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def steps_saved(last, monkeypatch, seconds: list[float]) -> list[int]:
    """After which steps `last` saves, when step s starts at `seconds[s]`."""
    clock, found = Clock(), []
    monkeypatch.setattr(callbacks, "time", clock)
    monkeypatch.setattr(callbacks, "save_last", lambda trainer, count: found.append(trainer.global_step))
    trainer = Trainer(world_size=1, global_step=0)
    last.on_train_start(trainer, None)
    for step, now in enumerate(seconds):
        trainer.global_step, clock.now = step, now
        last.on_train_batch_start(trainer, None, step)
    last.on_train_end(trainer, None)
    return found


@pytest.mark.parametrize(
    ("every", "steps"),
    [
        ({"every_n_steps": 3}, [3, 6, 7]),
        ({"every_n_minutes": 1}, [2, 5, 7]),
        ({"every_n_minutes": 0.5, "every_n_steps": 3}, [1, 2, 3, 5, 6, 7]),
        ({"every_n_minutes": 1.0, "every_n_steps": 4}, [2, 4, 7]),
        ({"every_n_minutes": 60}, [7]),
    ],
)
def test_saved_every_so_many_steps_or_minutes(monkeypatch, every, steps):
    starts = [0.0, 40.0, 80.0, 119.0, 139.0, 150.0, 190.0, 205.0]
    assert steps_saved(callbacks.Last(**every), monkeypatch, starts) == steps


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "callbacks.last: found neither"),
        ({"every_n_steps": 0}, "every_n_steps: found 0"),
        ({"every_n_minutes": 0.0}, "every_n_minutes: found 0.0"),
        ({"every_n_minutes": math.nan}, "every_n_minutes: found nan"),
        ({"every_n_steps": 1, "keep": 0}, "keep: found 0"),
    ],
)
def test_what_last_cannot_do_is_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        callbacks.Last(**wrong)


class Diverged:
    """A module whose loss is no number any more."""

    def refuse_divergence(self):
        raise ArchlabError("diverged")


def test_a_diverged_model_is_not_saved(tmp_path):
    wrote = []
    trainer = Trainer(lightning_module=Diverged(), default_root_dir=tmp_path, save_checkpoint=wrote.append)
    with pytest.raises(ArchlabError, match="diverged"):
        callbacks.save(trainer, "best")
    trainer.lightning_module = SimpleNamespace()
    callbacks.save(trainer, "best")
    assert wrote == [tmp_path / "checkpoints/best.ckpt"]


def full_after(size: int, monkeypatch) -> None:
    """Leaves room for `size` bytes of each checkpoint that is written from now on."""

    class Short:
        """A file on a disk with so much room."""

        def __init__(self, file):
            self.file, self.room = file, size

        def write(self, data):
            self.room -= len(data)
            if self.room < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return self.file.write(data)

    whole = Sealing.__init__
    monkeypatch.setattr(Sealing, "__init__", lambda self, file: whole(self, Short(file)))


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    place, weight = tmp_path / "last.ckpt", torch.zeros(2**18)
    AtomicIO().save_checkpoint({"global_step": 1, "weight": weight}, place)
    size = place.stat().st_size / 2**20
    full_after(10_000, monkeypatch)
    with pytest.raises(
        DiskFull, match=rf"last\.ckpt: no room is left: .* are free .* of the {size:.1f} MiB that it takes"
    ):
        AtomicIO().save_checkpoint({"global_step": 2, "weight": weight}, place)
    assert read(place)["global_step"] == 1
    assert [file.name for file in tmp_path.iterdir()] == ["last.ckpt"]


def test_any_other_fault_of_a_write_is_not_called_a_full_disk(tmp_path, monkeypatch):
    def half(contents, file):
        file.write(b"PK")
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(OSError, match="Input/output error"):
        AtomicIO().save_checkpoint({}, tmp_path / "last.ckpt")
    assert not list(tmp_path.iterdir())


def test_a_run_whose_disk_is_full_fails_and_can_go_on(tmp_path, monkeypatch):
    (tmp_path / "undisturbed").mkdir()
    whole = trained(tmp_path / "undisturbed").path
    with monkeypatch.context() as patch:
        real = callbacks.save

        def filling(trainer, name):
            if trainer.global_step == 8:
                full_after(1000, patch)
            real(trainer, name)

        patch.setattr(callbacks, "save", filling)
        with pytest.raises(DiskFull, match="make room, then go on with resume="):
            trained(tmp_path)
    path = only_run(tmp_path)
    assert summary(path)["status"] == "failed" and summary(path)["reason"].startswith("DiskFull: ")
    assert kept(path) == ["best.ckpt", "last.ckpt", "step-000004.ckpt"]
    assert rows(resumed(path).path) == rows(whole)


def test_an_average_is_deployed_in_place_of_the_weights(tmp_path):
    path = trained(tmp_path).path
    place = RunFolder(path).checkpoint("best")
    contents = read(place)
    name = "layers.0.mixer.q.weight"
    contents["averaged"] = {name: torch.full_like(contents["state_dict"][name], 0.5)}
    AtomicIO().save_checkpoint(contents, place)
    deployed = load_run(path).model.state_dict()
    assert deployed[name].unique() == 0.5
    assert same({**deployed, name: 0}, {**contents["state_dict"], name: 0})
    contents["averaged"] = {"layers.9.mixer.q.weight": torch.zeros(1)}
    AtomicIO().save_checkpoint(contents, place)
    with pytest.raises(ArchlabError, match=r"unexpected \['layers.9"):
        load_run(path)
