"""Speed is told in tokens, in FLOPs over the device's own, in time that no step was under way, and in memory."""

from types import SimpleNamespace

import pytest
import torch

from builder.experiments.metrics import Axes, read_metrics
from builder.training.callbacks import speed
from builder.training.callbacks.speed import Speed
from builder.training.peaks import peak_of, stated_peak
from tests.tiny_run import trained


@pytest.mark.parametrize(
    ("name", "half", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", True, 989e12),
        ("NVIDIA H100 PCIe", True, 756e12),
        ("NVIDIA A100-SXM4-80GB", True, 312e12),
        ("NVIDIA A100-SXM4-80GB", False, 19.5e12),
        ("NVIDIA A10", True, 125e12),
        ("NVIDIA L40S", True, 362e12),
        ("Tesla T4", True, 65e12),
        ("NVIDIA A10G", True, None),
        ("a device of tomorrow", True, None),
    ],
)
def test_peaks_are_those_of_the_data_sheets(name, half, peak):
    assert stated_peak(name, half) == peak


def test_no_one_states_the_peak_of_a_processor():
    assert peak_of(torch.device("cpu"), "bf16-mixed") is None


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(speed.time, "perf_counter", lambda: now[0])
    return now


def drive(clock, monkeypatch, *, peak, world=1):
    """What is told after two steps of a second each, with half a second before each and a validation of ten between."""
    told = {}
    monkeypatch.setattr(speed, "peak_of", lambda *_: peak)
    trainer = SimpleNamespace(log_every_n_steps=2, global_step=0, precision="32-true", world_size=world)
    module = SimpleNamespace(device=torch.device("cpu"), log_dict=told.update)
    callback = Speed(Axes(tokens_per_step=100, flops_per_token=7))
    callback.on_train_start(trainer, module)
    for step in (1, 2):
        clock[0] += 0.5
        callback.on_train_batch_start(trainer)
        clock[0] += 1.0
        trainer.global_step = step
        callback.on_train_batch_end(trainer, module)
        callback.on_validation_start(trainer, module)
        clock[0] += 10.0
        callback.on_validation_end(trainer, module)
    return told


def test_validation_and_waiting_are_told_apart(clock, monkeypatch):
    told = drive(clock, monkeypatch, peak=None)
    assert told["perf/tokens_per_second"] == pytest.approx(200 / 3)
    assert told["perf/waiting"] == pytest.approx(1 / 3)
    assert "perf/mfu" not in told


@pytest.mark.parametrize("world", [1, 2])
def test_mfu_is_what_was_done_over_what_all_devices_could(clock, monkeypatch, world):
    told = drive(clock, monkeypatch, peak=1e4, world=world)
    assert told["perf/mfu"] == pytest.approx(3 * 200 * 7 / 3 / (world * 1e4))


def test_a_run_tells_its_speed_and_memory(tmp_path):
    row = next(row for row in read_metrics(trained(tmp_path).metrics) if "perf/waiting" in row)
    assert row["perf/tokens_per_second"] > 0 and 0 < row["perf/waiting"] < 1
    assert 0.05 < row["perf/peak_memory_gib"] < 24
    assert "perf/mfu" not in row
