"""Two processes on a CPU train what one trains: losses, gradients and weights, divided in any of the ways there are."""

import os
import signal
from contextlib import suppress
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from builder import build, export_hf, load_run
from builder.errors import ArchlabError
from builder.experiments.train import Stopped, resume, take_part, train
from builder.memory import Forecaster
from builder.training.checkpoint import read
from builder.training.compiled import compiled
from builder.training.module import Training
from tests.forked import in_ranks
from tests.tiny_run import MOE, only_run, plant, rows, spec_of, summary, trained, without_probes

WAYS = {
    "ddp": "trainer.strategy={_target_: builder.training.parallel.ddp}",
    "fsdp": "trainer.strategy={_target_: builder.training.parallel.Sharded}",
    "shards": "trainer.strategy={_target_: builder.training.parallel.Sharded, sharded_checkpoints: true}",
    "tp": "trainer.strategy={_target_: builder.training.parallel.Sharded, tensor_parallel_size: 2}",
    "ep": "trainer.strategy={_target_: builder.training.parallel.Sharded, expert_parallel: true}",
}
KINDS = {"dense": (), "moe": (*MOE, "model.moe.balance.aux_loss=0.1", "model.moe.balance.bias_speed=0.01")}


@pytest.fixture(autouse=True)
def forked(monkeypatch):
    """Ranks are forks of this process."""
    without_probes(monkeypatch)
    begin = lambda arguments, count: in_ranks(count, lambda _: part(arguments))  # noqa: E731
    monkeypatch.setattr("builder.experiments.together.start", begin)


def part(arguments):
    """What a rank does, one that was asked to stop included."""
    with suppress(Stopped):
        take_part(**arguments)


def two(tmp_path: Path, *more: str) -> Path:
    """A run that two processes have trained."""
    return train(spec_of(tmp_path, "trainer.devices=2", *more), Console(quiet=True)).path


def assert_alike(path: Path, other: Path, atol: float = 1e-6) -> None:
    ours, theirs = rows(path), rows(other)
    assert [row.keys() for row in ours] == [row.keys() for row in theirs]
    for row, wanted in zip(ours, theirs, strict=True):
        assert row == pytest.approx(wanted, rel=2e-6, abs=atol), row
    for name in ("last", "best"):
        state, wanted = (read(run / "checkpoints" / f"{name}.ckpt")["state_dict"] for run in (path, other))
        assert list(state) == list(wanted)
        assert all(torch.allclose(state[key], wanted[key], rtol=0, atol=atol) for key in state)


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("way", "kind"), [(way, kind) for way in WAYS for kind in KINDS if (way, kind) != ("ep", "dense")]
)
def test_two_processes_train_what_one_trains(tmp_path, way, kind):
    assert_alike(two(tmp_path, WAYS[way], *KINDS[kind], "output.name=two"), trained(tmp_path, *KINDS[kind]).path)


@pytest.mark.parametrize("way", ["fsdp", "tp", "ep"])
def test_a_rank_holds_its_part_alone(tmp_path, monkeypatch, way):
    """The negative control: what is compared above really is divided."""
    spec = spec_of(tmp_path, "trainer.devices=2", WAYS[way], *KINDS["moe"])
    held = tmp_path / "held"

    def count(self):
        local = sum(getattr(p, "to_local", lambda p=p: p)().numel() for p in self.model.parameters())
        held.write_text(str(local))

    monkeypatch.setattr(Training, "on_train_end", count)
    train(spec, Console(quiet=True))
    every = sum(parameter.numel() for parameter in build(spec.model, device="meta").parameters())
    assert int(held.read_text()) < every


def cut(tmp_path, monkeypatch, *more):
    """A run that was asked to stop after step 5; one rank alone is told."""
    with monkeypatch.context() as patch:
        plant(patch, 5, lambda: os.environ.get("RANK", "0") == "0" and os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(Stopped, match="go on with resume="):
            train(spec_of(tmp_path, *more), Console(quiet=True))
    return only_run(tmp_path)


SHARDED = {"_target_": "builder.training.parallel.Sharded"}
PLACES = {
    "one": {"trainer.devices": 1, "trainer.strategy": "auto"},
    "fsdp": {"trainer.devices": 2, "trainer.strategy": SHARDED, "batch.micro_batch": 1},
    "ddp": {
        "trainer.devices": 2,
        "trainer.strategy": {"_target_": "builder.training.parallel.ddp"},
        "batch.micro_batch": 1,
    },
    "one1": {"trainer.devices": 1, "trainer.strategy": "auto", "batch.micro_batch": 1},
}


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("ddp", "one"),
        ("shards", "one"),
        ("shards", "fsdp"),
        ("one", "fsdp"),
        ("fsdp", "one"),
        ("one", "one1"),
        ("one", "ddp"),
    ],
)
def test_a_run_goes_on_in_another_number_of_processes(tmp_path, monkeypatch, first, then):
    (tmp_path / "whole").mkdir()
    whole = trained(tmp_path / "whole", *KINDS["moe"]).path
    how = () if first == "one" else (WAYS[first], "trainer.devices=2")
    path = cut(tmp_path, monkeypatch, *KINDS["moe"], *how)
    assert summary(path)["status"] == "interrupted"
    resume(path, Console(quiet=True), PLACES[then])
    assert summary(path)["status"] == "completed"
    assert_alike(path, whole)


def test_parts_are_read_as_one_model_and_exported(tmp_path):
    """A folder of parts is a checkpoint like any other: it is loaded, and consolidated to safetensors."""
    path = two(tmp_path, WAYS["shards"])
    held = read(path / "checkpoints/last.ckpt")["state_dict"]
    model = load_run(path, "last").model
    assert all(torch.equal(value, held[name]) for name, value in model.state_dict().items())
    export_hf(model, tmp_path / "exported")
    (file,) = (tmp_path / "exported").glob("*.safetensors")
    table = load_file(file)["model.embed_tokens.weight"]
    assert torch.equal(table, held["embedding.weight"])


def test_a_damaged_part_is_named_and_the_checkpoint_before_it_used(tmp_path, monkeypatch):
    path = cut(tmp_path, monkeypatch, WAYS["shards"], "trainer.devices=2")
    before, newest = sorted(path.glob("checkpoints/step-*.ckpt"))
    part = max(newest.glob("*.distcp"), key=lambda file: file.stat().st_size)
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    console = Console(record=True, width=400, file=StringIO())
    resume(path, console, {})
    said = console.export_text()
    assert f"{part.name} isn't as it was written" in said
    assert f"going on from {before.stem}" in said
    assert summary(path)["status"] == "completed"


def test_what_a_kill_left_of_a_draft_is_in_no_checkpoint(tmp_path, monkeypatch):
    path = cut(tmp_path, monkeypatch, WAYS["shards"], "trainer.devices=2")
    left = path / "checkpoints/.step-000008.ckpt.part"
    monkeypatch.setattr("builder.experiments.train.clear_drafts", lambda folder: None)
    left.mkdir()
    (left / "__7_0.distcp").write_bytes(b"of a rank that is no more")
    resume(path, Console(quiet=True), {})
    assert not (path / "checkpoints/step-000008.ckpt/__7_0.distcp").exists()


def test_the_micro_batch_that_fits_is_found(tmp_path, monkeypatch):
    """auto: the memory of the machine decides, and no result depends on it."""
    spec = spec_of(tmp_path, "batch.micro_batch=auto")
    forecaster = Forecaster(spec)
    room = int(forecaster.at(2).peak.total / 0.9) + 1
    assert forecaster.at(4).peak.total > 0.9 * room
    seen, whole = [], Training.training_step

    def watched(self, *args):
        seen.append(self.micro_batch)
        return whole(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr("builder.memory.device.memory", lambda: room)
        patch.setattr(Training, "training_step", watched)
        path = train(spec, Console(quiet=True)).path
    assert set(seen) == {2}
    (tmp_path / "whole").mkdir()
    assert_alike(path, trained(tmp_path / "whole").path)


def test_what_a_run_is_may_not_change_when_it_goes_on(tmp_path, monkeypatch):
    path = cut(tmp_path, monkeypatch)
    with pytest.raises(ArchlabError, match="hash"):
        resume(path, Console(quiet=True), {"batch.sequences": 8})


@pytest.mark.parametrize(("first", "then"), [("blocks", False), (False, "blocks"), (False, True)])
def test_a_run_goes_on_compiled_or_not(tmp_path, monkeypatch, first, then):
    """Compilation changes no name in a checkpoint, and no number: what is traced is run as it is."""
    monkeypatch.setattr("builder.training.losses.compiled", partial(compiled, backend="eager"))
    (tmp_path / "whole").mkdir()
    whole = trained(tmp_path / "whole").path
    path = cut(tmp_path, monkeypatch, f"compile={str(first).lower()}")
    assert not any("_orig_mod" in name for name in read(path / "checkpoints/last.ckpt")["state_dict"])
    resume(path, Console(quiet=True), {"compile": then})
    assert_alike(path, whole)
