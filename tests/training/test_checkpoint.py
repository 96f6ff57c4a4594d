"""Checkpoints: under the model's own names, readable by anyone, whole or not there, the best one truly the best."""

import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from builder import build, load_run
from builder.errors import ArchlabError
from builder.training.callbacks import checkpoint as callbacks
from builder.training.checkpoint import AtomicIO, read
from builder.training.module import Training
from tests.tiny_run import checkpoint, rows, same, spec_of, trained


def test_names_are_the_models_own_and_the_config_is_named(tmp_path):
    path, spec = trained(tmp_path).path, spec_of(tmp_path)
    for name in ("best", "last"):
        contents = checkpoint(path, name)  # with weights_only=True
        assert contents["state_dict"].keys() == build(spec.model, device="meta").state_dict().keys()
        assert contents["config_hash"] == spec.hash
        assert contents["global_step"] == 12
    assert sorted(file.name for file in (path / "checkpoints").iterdir()) == ["best.ckpt", "last.ckpt"]


def test_a_compiled_run_writes_the_same_checkpoint(tmp_path, monkeypatch):
    short = ("trainer.max_steps=3", "trainer.val_check_interval=3")
    plain = trained(tmp_path, *short).path
    calls = []

    def compiled(function):
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


def test_best_is_from_the_step_that_was_best(tmp_path, monkeypatch):
    losses = iter([3.0, 2.0, 2.5])
    monkeypatch.setattr(Training, "on_validation_epoch_end", lambda self: self.log("val/loss", next(losses)))
    path = trained(tmp_path).path
    assert checkpoint(path, "best")["global_step"] == 8
    assert checkpoint(path, "last")["global_step"] == 12


def test_half_a_write_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    place = tmp_path / "last.ckpt"
    AtomicIO().save_checkpoint({"global_step": 1}, place)

    def half(contents, file):
        file.write(b"PK")
        raise OSError("no space left")

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(OSError, match="no space left"):
        AtomicIO().save_checkpoint({"global_step": 2}, place)
    assert read(place) == {"global_step": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["last.ckpt"]


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    return bytes(byte ^ 0x5A for byte in data)


@pytest.mark.parametrize("damage", [cut, flipped, lambda data: b"", lambda data: b"text"])
def test_a_damaged_checkpoint_is_named(tmp_path, damage):
    place = tmp_path / "last.ckpt"
    AtomicIO().save_checkpoint({"weight": torch.randn(50)}, place)
    place.write_bytes(damage(place.read_bytes()))
    with pytest.raises(ArchlabError, match=r"last\.ckpt: the checkpoint is damaged"):
        read(place)


def test_no_code_runs_on_loading(tmp_path):
    class Payload:
        def __reduce__(self):
            return print, ("code ran",)

    place = tmp_path / "last.ckpt"
    torch.save({"state_dict": Payload()}, place)
    with pytest.raises(ArchlabError, match="damaged"):
        read(place)


def test_a_missing_checkpoint_lists_those_there(tmp_path):
    for name in ("best", "last"):
        (tmp_path / f"{name}.ckpt").touch()
    with pytest.raises(ArchlabError, match=r"nope\.ckpt: no such checkpoint; there are: best, last"):
        read(tmp_path / "nope.ckpt")
    with pytest.raises(ArchlabError, match="there are: none"):
        read(tmp_path / "empty" / "last.ckpt")


def test_a_flipped_byte_is_damage(tmp_path):
    path = trained(tmp_path).checkpoint("last")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(ArchlabError, match="damaged"):
        read(path)
