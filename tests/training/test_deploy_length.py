"""The validation loss at the length of deployment, against windows cut and read by hand."""

import pytest
import torch
import torch.nn.functional as F

from builder import load_run
from builder.data import cache_folder, prepare
from tests.tiny_run import rows, spec_of, trained, without_probes

CALLBACKS = "callbacks=[default,deploy_length]"
METRIC = "val/loss_at_deploy_length"
ALL = "trainer.limit_val_batches=1.0"


@pytest.fixture(autouse=True)
def no_probes(monkeypatch):
    without_probes(monkeypatch)


def by_hand(path, length, windows=None):
    """The mean loss of the run's last weights over windows of `length` validation tokens: all, or the first."""
    run = load_run(path, checkpoint="last")
    spec = run.spec
    tokens = prepare(spec, cache=cache_folder()).val.first(10**9)
    losses = []
    for start in list(range(0, len(tokens) - 1, length))[:windows]:
        window = tokens[start : start + length + 1]
        with torch.no_grad():
            logits = run.model(window[None, :-1]).logits[0]
        losses.append(F.cross_entropy(logits, window[1:], reduction="none"))
    return torch.cat(losses).mean().item()


@pytest.mark.parametrize("more", [(), ("batch.micro_batch=3",), ("ema={decay: 0.5}",), ("model/position=alibi",)])
def test_it_is_that_of_longer_windows(tmp_path, more):
    path = trained(tmp_path, CALLBACKS, ALL, *more).path
    last = [row for row in rows(path) if METRIC in row][-1]
    assert last["step"] == 12
    assert last[METRIC] == pytest.approx(by_hand(path, 32), rel=1e-5)
    assert last["val/loss"] == pytest.approx(by_hand(path, 16), rel=1e-5)
    assert last[METRIC] != pytest.approx(last["val/loss"], rel=1e-5)


def test_it_is_told_at_each_validation_and_changes_nothing_else(tmp_path):
    paths = []
    for name, more in (("with", (CALLBACKS,)), ("without", ())):
        (tmp_path / name).mkdir()
        paths.append(trained(tmp_path / name, *more).path)
    with_it, without = map(rows, paths)
    assert [row["step"] for row in with_it if METRIC in row] == [4, 8, 12]
    assert [{key: value for key, value in row.items() if key != METRIC} for row in with_it] == without
    assert spec_of(tmp_path / "with", CALLBACKS).hash == spec_of(tmp_path / "with").hash  # it only measures


def test_a_limit_of_the_trainer_is_kept(tmp_path):
    path = trained(tmp_path, CALLBACKS, "trainer.limit_val_batches=2").path  # of 4 rows of 16 tokens, so 2 rows of 32
    last = [row for row in rows(path) if METRIC in row][-1]
    assert last[METRIC] == pytest.approx(by_hand(path, 32, windows=4), rel=1e-5)
    assert last[METRIC] != pytest.approx(by_hand(path, 32), rel=1e-5)


def test_a_model_deployed_as_it_is_trained_has_one_loss(tmp_path):
    path = trained(tmp_path, CALLBACKS, ALL, "model.deploy_length=16").path
    last = [row for row in rows(path) if METRIC in row][-1]
    assert last[METRIC] == pytest.approx(last["val/loss"], rel=1e-6)
