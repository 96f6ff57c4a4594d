"""What a device has, how ranks divide a step, and the micro-batch that follows."""

from __future__ import annotations

import math
import os

import pytest

from builder.division import Division
from builder.memory import Bytes, Forecaster, device, largest_micro_batch, told
from builder.memory.device import device_of, memory
from builder.memory.shares import gathered, share
from tests.memory.test_forecast import spec_of

OURS = "builder.training.parallel"
TENSOR = {"tensor_parallel_size": 2}
EXPERTS = {"expert_parallel": True}


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch):
    """room(bytes): what the machine has from now on."""
    return lambda size: monkeypatch.setattr(device, "memory", lambda: size)


def test_the_cpu_has_what_the_system_and_the_container_give(tmp_path, monkeypatch):
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(device, "_LIMITS", (limit,))
    assert memory() == whole
    limit.write_text("max\n")
    assert memory() == whole
    limit.write_text(f"{2**30}\n")
    assert memory() == 2**30


def test_the_ranks_of_a_machine_share_its_memory(room):
    room(8 * 2**30)
    assert device_of({"accelerator": "cpu", "devices": 4}).memory == 2 * 2**30
    assert device_of({"accelerator": "cpu", "devices": 4, "num_nodes": 2}).memory == 2 * 2**30


@pytest.mark.skipif(device.torch.cuda.is_available(), reason="there is a GPU to be seen")
@pytest.mark.parametrize("accelerator", ["gpu", "cuda", "tpu"])
def test_a_device_that_is_not_here_has_nobody_knows_what(accelerator):
    unseen = device_of({"accelerator": accelerator})
    assert (unseen.kind, unseen.memory) == ("cpu", None)
    assert accelerator in unseen.why


@pytest.mark.parametrize(
    ("trainer", "division"),
    [
        ({"devices": 1}, Division()),
        ({"devices": 4, "num_nodes": 2}, Division(4, 8, buckets=True)),
        ({"devices": [0, 2], "strategy": {"_target_": f"{OURS}.ddp"}}, Division(2, 2, buckets=True)),
        ({"devices": "0,1,", "strategy": "fsdp"}, Division(2, 2, 2)),
        ({"devices": 8, "num_nodes": 2, "strategy": {"_target_": f"{OURS}.Sharded"}}, Division(8, 16, 16)),
        ({"devices": 8, "strategy": {"_target_": f"{OURS}.Sharded", **TENSOR}}, Division(8, 4, 4, 2)),
        ({"devices": 2, "strategy": {"_target_": f"{OURS}.Sharded", **EXPERTS}}, Division(2, 2, 2, experts=True)),
    ],
)
def test_a_trainer_divides_the_work(trainer, division):
    assert Division.of(trainer) == division


def test_a_shard_holds_its_part():
    held = Bytes(weights=1000, gradients=1000, optimizer=2001, activations=7, logits=5)
    assert share(Division(8, 4, 4, 2), held) == Bytes(125, 125, 251, 7, 5)
    assert share(Division(8, 8, buckets=True), held) == held
    assert gathered(Division(8, 8, 8), layer=10, ends=4) == Bytes(weights=24, gradients=14)
    assert gathered(Division(), layer=10, ends=4) == Bytes()


def test_more_ranks_hold_less():
    """Rows are divided by two; and with shards weights and moments too, less what is gathered."""
    several = ["model.n_layers=6", "trainer.devices=2"]
    trainers = (several[:1], several, [*several, "+trainer.strategy=fsdp"])
    forecasters = [Forecaster(spec_of(*words)) for words in trainers]
    peaks = [forecaster.at(forecaster.rows).peak for forecaster in forecasters]
    assert [forecaster.rows for forecaster in forecasters] == [16, 8, 8]
    assert peaks[1].weights == peaks[0].weights
    assert peaks[1].activations + peaks[1].logits == pytest.approx(
        (peaks[0].activations + peaks[0].logits) / 2, rel=0.01
    )
    assert peaks[1].gradients == peaks[0].weights  # the buckets
    assert peaks[2].optimizer == pytest.approx(peaks[0].optimizer / 2, rel=0.01)
    assert peaks[0].weights / 2 < peaks[2].weights < peaks[0].weights


def test_the_largest_micro_batch_leaves_a_tenth(room):
    words = ["model.n_layers=1", "batch.sequences=6"]
    spec = spec_of(*words)
    forecaster = Forecaster(spec)
    peaks = {size: forecaster.at(size).peak.total for size in (1, 2, 3, 6)}
    assert sorted(peaks.values()) == list(peaks.values())
    for spare, size in ((0, 3), (2, 2)):
        room(math.ceil(peaks[3] / 0.9) - spare)
        assert largest_micro_batch(spec) == size
    room(peaks[1])
    assert largest_micro_batch(spec) == 1
    room(None)
    assert largest_micro_batch(spec) == 6
    room(math.ceil(peaks[2] / 0.9))
    assert Forecaster(spec_of(*words, "batch.micro_batch=auto")).chosen == 2


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1.02e+03 B"), (1536, "1.5 KiB"), (3 * 2**40, "3 TiB")])
def test_bytes_are_told_in_units(count, text):
    assert told(count) == text
