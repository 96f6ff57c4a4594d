"""The memory of a step in the checklist: it fits, hardly, not, or nobody knows; and what would make it fit, does."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from builder import Finding, Status, check, compose, load
from builder.checklist.memory import _remedies
from builder.memory import device, forecast, watch
from builder.memory.watch import Watch
from builder.spec import RunSpec
from tests.memory.test_forecast import SIZES


def spec_of(*overrides: str) -> RunSpec:
    return load(compose([*SIZES, "model.n_layers=1", "batch.sequences=4", *overrides]))


def found(spec: RunSpec, **knobs) -> Finding:
    (finding,) = (one for one in check(spec, probes=False, **knobs).findings if one.path == "batch")
    return finding


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch):
    """room(bytes): what the machine has from now on."""
    return lambda size: monkeypatch.setattr(device, "memory", lambda: size)


def test_it_fits(room):
    room(2**30)
    finding = found(spec_of())
    assert (finding.status, finding.section, finding.fix) == (Status.PASS, 1, "")
    assert "weights" in finding.rule and "activations" in finding.rule and "has 1 GiB" in finding.rule
    assert "4 rows at once" in finding.rule


def test_it_fits_hardly(room):
    room(int(forecast(spec_of()).peak.total / 0.95))
    finding = found(spec_of())
    assert finding.status is Status.WARN
    assert "batch.micro_batch=2" in finding.fix


def test_what_does_not_fit_fails_with_what_fits(room):
    spec = spec_of("batch.sequences=16")
    room(forecast(spec).peak.total // 2)
    finding = found(spec)
    assert finding.status is Status.FAIL
    first, second, *_ = finding.fix.split(", or ")
    assert first.startswith("batch.micro_batch=")
    assert second.startswith("activation_checkpointing=true")
    for fix in (first, second):
        assert found(spec_of("batch.sequences=16", *fix.split())).status is Status.PASS


def test_what_would_be_played_without_end_is_no_remedy(room, monkeypatch):
    """Two micro-batches, or layers computed again, are more operations than one pass over all rows."""
    spec = spec_of("batch.sequences=16")
    room(forecast(spec).peak.total // 2)
    counts: list[int] = []
    before = Watch.stretches
    monkeypatch.setattr(Watch, "stretches", lambda self: counts.append(self._played) or before(self))
    forecast(spec)
    monkeypatch.setattr(watch, "MOST", max(counts))
    finding = found(spec)
    assert (finding.status, finding.fix) == (Status.FAIL, "a smaller model, or a device with more memory")


def test_weights_alone_that_do_not_fit_a_cpu_are_not_sent_to_its_other_ranks(room):
    """All ranks of a machine share its memory: what doesn't fit one of them fits no more of them."""
    spec = spec_of("model.d_model=256")
    room(forecast(spec).lasting.total // 3)
    finding = found(spec)
    assert finding.status is Status.FAIL
    assert finding.fix == "a smaller model, or a device with more memory"


def test_weights_alone_that_do_not_fit_a_gpu_ask_for_shards():
    gpu = SimpleNamespace(kind="cuda", memory=10**9)
    expected = SimpleNamespace(lasting=SimpleNamespace(total=3 * 10**9), device=gpu, micro_batch=4)
    forecaster = SimpleNamespace(spec=None, division=SimpleNamespace(shards=1))
    assert list(_remedies(forecaster, expected)) == ["trainer=fsdp on 4 ranks or more batch.micro_batch=1"]  # type: ignore[arg-type]


def test_compiled_it_may_fit(room):
    spec = spec_of("compile=true")
    room(forecast(spec).peak.total - 1)
    assert found(spec).status is Status.WARN
    room(forecast(spec).lasting.total - 1)
    assert found(spec).status is Status.FAIL


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to be seen")
def test_a_device_that_is_not_seen_is_unknown():
    finding = found(spec_of("trainer=gpu"))
    assert finding.status is Status.UNKNOWN
    assert "accelerator=gpu" in finding.rule and finding.fix.startswith("trainer=auto")
    assert "weights" in finding.rule


def test_a_component_that_wants_numbers_is_unknown():
    finding = found(spec_of("model.ffn.name=tests.checklist.curious:Curious"))
    assert finding.status is Status.UNKNOWN
    assert "DataDependentOutputException" in finding.rule


def test_what_is_not_trained_needs_no_room(room):
    room(1)
    assert not [one for one in check(spec_of(), probes=False, trains=False).findings if one.path == "batch"]
