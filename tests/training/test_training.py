"""A run learns, logs each step once with its true axes, and depends on nothing but its config."""

import json
import math
import os
from pathlib import Path

import pytest
import torch

from builder import build
from builder.data import TrainBatches
from builder.experiments.metrics import Axes
from builder.training.jsonl import JsonlLogger
from builder.training.losses import Losses
from builder.training.module import Diverged, Training
from builder.training.objective import Task
from builder.training.objective.next_token import NextToken
from tests.tiny_run import TEXT, checkpoint, only_run, rows, same, spec_of, summary, trained, without_probes

TOKENS = 4 * 16  # of a step
FORWARD_FLOPS = 2 * (258 * 16 + 4 * 16 * 16 + 3 * 16 * 32) + 4 * 16 * 16  # of a token: matrices, scores and values


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory):
    """The tiny run with a higher learning rate and more steps."""
    more = ("trainer.max_steps=60", "trainer.val_check_interval=20", "optimizer.lr=0.02", "trainer.log_every_n_steps=5")
    with pytest.MonkeyPatch.context() as patch:
        without_probes(patch)
        return trained(tmp_path_factory.mktemp("run"), *more).path


def test_the_validation_loss_falls(run):
    losses = [row["val/loss"] for row in rows(run) if "val/loss" in row]
    assert len(losses) == 3
    assert losses[-1] < losses[0] < math.log(258)
    assert losses[-1] < 0.7 * math.log(258)


def test_every_row_has_its_axes(run):
    for row in rows(run):
        assert row["tokens"] == row["step"] * TOKENS
        assert row["flops"] == 3 * row["tokens"] * FORWARD_FLOPS
    assert [row["step"] for row in rows(run) if "train/loss" in row] == list(range(5, 61, 5))
    assert [row["step"] for row in rows(run) if "val/loss" in row] == [20, 40, 60]


def test_rows_name_what_the_design_names(run):
    train, val = rows(run)[0], next(row for row in rows(run) if "val/loss" in row)
    axes = {"step", "tokens", "flops"}
    assert train.keys() == axes | {"train/loss", "optim/lr", "optim/grad_norm"}
    assert val.keys() == axes | {"val/loss", "val/accuracy", "val/perplexity", "val/bits_per_byte"}
    assert val["val/perplexity"] == pytest.approx(math.exp(val["val/loss"]))


def test_the_logged_rate_is_the_schedule_of_that_step(tmp_path):
    rates = [
        row["optim/lr"] for row in rows(trained(tmp_path, "trainer.log_every_n_steps=1").path) if "optim/lr" in row
    ]
    warm, rest = [1 / 3, 2 / 3], [0.1 + 0.9 * (1 + math.cos(math.pi * step / 10)) / 2 for step in range(10)]
    assert rates == pytest.approx([1e-3 * factor for factor in warm + rest])


def test_the_train_loss_is_weighted_by_targets(tmp_path, monkeypatch):
    seen = []

    def task(self, batch):
        tokens = batch["tokens"]
        counted = torch.arange(16).expand(4, 16) < 1 + 3 * (len(seen) % 5)  # another count in each step
        return Task(tokens[:, :-1], tokens[:, 1:], loss_mask=counted)

    def losses(self, *args):
        total, count, aux = whole(self, *args)
        seen.extend([(total.item(), count.item())] if self.model.training else [])
        return total, count, aux

    whole = Losses.of
    monkeypatch.setattr(NextToken, "task", task)
    monkeypatch.setattr(Losses, "of", losses)
    logged = [row["train/loss"] for row in rows(trained(tmp_path).path) if "train/loss" in row]
    assert len({count for _, count in seen}) > 2
    windows = [seen[start : start + 3] for start in range(0, 12, 3)]
    wanted = [sum(total for total, _ in window) / sum(count for _, count in window) for window in windows]
    assert logged == pytest.approx(wanted, rel=1e-6)


def test_a_batch_without_targets_does_not_spoil_a_run(tmp_path, monkeypatch):
    whole = TrainBatches.at

    def at(self, step):
        batch = whole(self, step)
        return batch | {"attention_mask": torch.zeros(4, 17, dtype=torch.bool)} if step == 5 else batch

    monkeypatch.setattr(TrainBatches, "at", at)
    path = trained(tmp_path, "trainer.log_every_n_steps=1").path
    losses = {row["step"]: row["train/loss"] for row in rows(path) if "train/loss" in row}
    assert losses.pop(6) == 0
    assert all(4 < loss < 6 for loss in losses.values())
    assert math.isfinite(rows(path)[-1]["val/loss"])


def clipped(tmp_path, limit, algorithm):
    """(the whole gradient after clipping, what was logged) of one step with large gradients."""

    class Bare(Training):
        global_step = 0
        _log_every = 1

    clipping = ["null" if limit is None else limit, "null" if algorithm is None else algorithm]
    spec = spec_of(
        tmp_path,
        *(f"trainer.gradient_clip_{key}={given}" for key, given in zip(("val", "algorithm"), clipping, strict=True)),
    )
    module = Bare(spec, build(spec.model, seed=0), None)  # type: ignore[arg-type]
    logged = {}
    module.log_dict = logged.update
    optimizer = module.configure_optimizers()["optimizer"]
    for parameter in module.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    module.on_before_optimizer_step(optimizer)
    return torch.cat([parameter.grad.flatten() for parameter in module.parameters()]), logged


@pytest.mark.parametrize("algorithm", ["norm", "value", None])
@pytest.mark.parametrize("limit", [0.01, None])
def test_clipping_acts_on_the_whole_gradient_and_logs_it_as_it_was(tmp_path, limit, algorithm):
    gradient, logged = clipped(tmp_path, limit, algorithm)
    assert float(logged["optim/grad_norm"]) == pytest.approx(0.5 * math.sqrt(len(gradient)), rel=1e-5)
    if limit is None:
        assert (gradient == 0.5).all()
    elif algorithm == "value":
        assert torch.allclose(gradient, torch.tensor(0.01))
    else:
        assert float(gradient.norm()) == pytest.approx(0.01, rel=1e-4)


def test_the_seed_decides_and_nothing_else(tmp_path):
    dropout = "model.embedding.dropout=0.1"
    first = trained(tmp_path, dropout).path
    torch.manual_seed(99)
    torch.rand(7)
    other = trained(tmp_path, dropout, "seed=1").path  # another run in between
    second = trained(tmp_path, dropout).path
    assert same(checkpoint(first)["state_dict"], checkpoint(second)["state_dict"])
    assert same(checkpoint(first)["optimizer_states"], checkpoint(second)["optimizer_states"])
    assert rows(first) == rows(second)
    assert (first / "samples/step-12.txt").read_bytes() == (second / "samples/step-12.txt").read_bytes()
    assert not same(checkpoint(first)["state_dict"], checkpoint(other)["state_dict"])


def test_validating_changes_nothing(tmp_path):
    dropout = "model.embedding.dropout=0.1"
    often, seldom = (trained(tmp_path, dropout, f"trainer.val_check_interval={n}").path for n in (2, 12))
    assert len(rows(often)) > len(rows(seldom))
    assert same(checkpoint(often)["state_dict"], checkpoint(seldom)["state_dict"])
    assert [r for r in rows(often) if "train/loss" in r] == [r for r in rows(seldom) if "train/loss" in r]


def test_the_validation_loss_is_over_the_whole_split(tmp_path):
    path = trained(tmp_path, "trainer.limit_val_batches=1.0").path
    spec = spec_of(tmp_path)
    model = build(spec.model, seed=0)
    model.load_state_dict(checkpoint(path)["state_dict"])
    ids = torch.tensor([*TEXT.encode()[-round(len(TEXT) * spec.data.val_fraction) :], 256])  # type: ignore[attr-defined]
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(ids) - 1, 16):
            window = ids[None, start : start + 17]
            logits = model.eval()(window[:, :-1]).logits
            total += torch.nn.functional.cross_entropy(logits[0].double(), window[0, 1:], reduction="sum").item()
    assert rows(path)[-1]["val/loss"] == pytest.approx(total / (len(ids) - 1), rel=1e-5)


def test_a_summary_says_how_it_ended(run):
    said = summary(run)
    assert said["status"] == "completed"
    assert said["step"] == 60
    assert said["best"]["val/loss"] == min(row["val/loss"] for row in rows(run) if "val/loss" in row)
    assert said["ledger"]["ledger/flops_per_token"] == FORWARD_FLOPS
    assert said["threads"] <= (os.cpu_count() or 1)


def test_the_last_step_is_validated_whatever_the_interval(tmp_path: Path):
    folder = trained(tmp_path, "trainer.max_steps=7", "trainer.val_check_interval=5")
    assert [row["step"] for row in rows(folder.path) if "val/loss" in row] == [5, 7]
    short = trained(tmp_path, "trainer.max_steps=3", "trainer.val_check_interval=100", "output.name=short")
    assert short.checkpoint("best").is_file(), "a run shorter than the interval can be generated from"


def test_what_json_cannot_say_is_null(tmp_path: Path):
    log = JsonlLogger(tmp_path / "metrics.jsonl", Axes(1, 1))
    log.log_metrics({"train/loss": float("nan"), "optim/lr": 0.5}, step=0)
    assert json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=pytest.fail)["train/loss"] is None


def test_a_loss_that_is_no_number_ends_the_run_and_nothing_saved_is_lost(tmp_path, monkeypatch):
    def nan(self, task, *args):
        total, count, aux = whole(self, task, *args)
        return (total * math.nan if len(steps) >= 7 else total), count, aux

    steps, whole, step = [], Losses.of, Training.training_step
    monkeypatch.setattr(Losses, "of", nan)
    monkeypatch.setattr(Training, "training_step", lambda self, *args: (step(self, *args), steps.append(1))[0])
    with pytest.raises(Diverged, match="no finite number by step 8; what was saved before is kept"):
        trained(tmp_path)
    path = only_run(tmp_path)
    assert summary(path)["status"] == "failed" and "debug=anomaly" in summary(path)["reason"]
    assert checkpoint(path)["global_step"] == 4
    assert all(value.isfinite().all() for value in checkpoint(path)["state_dict"].values())


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_half_precision_learns_what_single_does(tmp_path, precision):
    """To the 8 bits that bfloat16 has; and the weights are in it, or aren't."""
    half = trained(tmp_path, f"trainer.precision={precision}").path
    single = trained(tmp_path).path
    assert rows(half)[-1]["val/loss"] == pytest.approx(rows(single)[-1]["val/loss"], rel=2e-2)
    assert rows(half)[-1]["val/loss"] != rows(single)[-1]["val/loss"]
    kept = {value.dtype for name, value in checkpoint(half)["state_dict"].items() if name.endswith("weight")}
    assert kept == {torch.bfloat16 if precision == "bf16-true" else torch.float32}
