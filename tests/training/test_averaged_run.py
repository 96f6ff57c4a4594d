"""A run that keeps an average: it is validated, sampled and loaded in place of the weights, and never trained."""

import os
import signal
from functools import partial

import pytest
import torch

from builder.experiments.run import load_run
from builder.experiments.train import Stopped
from builder.training.step import Step
from tests.tiny_run import MOE, checkpoint, only_run, plant, resumed, rows, same, spec_of, trained

EMA = "ema.decay=0.9"
FREE = ["optimizer=schedule_free", "schedule=constant"]
AVERAGES = {"ema": [EMA], "schedule_free": FREE}
STATE = ("state_dict", "averaged", "optimizer_states", "lr_schedulers", "global_step", "callbacks")


@pytest.mark.parametrize("options", [[], MOE], ids=["dense", "moe"])
def test_averaging_trains_nothing_else(tmp_path, options):
    plain, averaged = (trained(tmp_path, *options, *more).path for more in ([], [EMA]))
    for key in ("state_dict", "optimizer_states"):
        assert same(checkpoint(plain)[key], checkpoint(averaged)[key]), key
    lines, others = ([row for row in rows(path) if "train/loss" in row] for path in (plain, averaged))
    assert lines == others
    assert checkpoint(plain)["averaged"] == {}


def test_what_is_kept_is_the_average_of_all_steps(tmp_path, monkeypatch):
    past, whole = [], Step.backward

    def backward(self, training, batch):  # what the step before left
        past.append({name: weight.detach().double() for name, weight in training.model.named_parameters()})
        return whole(self, training, batch)

    monkeypatch.setattr(Step, "backward", backward)
    found = checkpoint(trained(tmp_path, EMA).path)
    past = [*past[1:], {name: found["state_dict"][name].double() for name in past[0]}]
    for name, first in past[0].items():
        wanted = first
        for weights in past[1:]:
            wanted = 0.9 * wanted + 0.1 * weights[name]
        torch.testing.assert_close(found["averaged"][name].double(), wanted, atol=1e-6, rtol=0)
        assert not torch.equal(found["averaged"][name], found["state_dict"][name])


@pytest.mark.parametrize("options", AVERAGES.values(), ids=AVERAGES)
def test_the_average_is_validated_sampled_and_loaded(tmp_path, options):
    path = trained(tmp_path, *options, "trainer.limit_val_batches=1.0").path
    found, model = checkpoint(path), load_run(path, "last").model
    for name, weight in model.named_parameters():
        assert torch.equal(weight, found["averaged"][name]) and not torch.equal(weight, found["state_dict"][name])
    losses = {}
    for key in ("averaged", "state_dict"):
        model.load_state_dict(found["state_dict"] | found[key])
        losses[key] = validated(tmp_path, model)
    logged = rows(path)[-1]["val/loss"]
    assert logged == pytest.approx(losses["averaged"], rel=1e-5) != pytest.approx(losses["state_dict"], rel=1e-5)


def validated(folder, model):
    """The mean loss of the validation split, window by window."""
    text = (folder / "text.txt").read_bytes()
    ids = torch.tensor([*text[-round(len(text) * spec_of(folder).data.val_fraction) :], 256])  # type: ignore[attr-defined]
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(ids) - 1, 16):
            window = ids[None, start : start + 17]
            logits = model.eval()(window[:, :-1]).logits
            total += torch.nn.functional.cross_entropy(logits[0].double(), window[0, 1:], reduction="sum").item()
    return total / (len(ids) - 1)


def test_what_is_sampled_at_the_end_is_the_average(tmp_path, monkeypatch):
    seen = {}

    def sample(model, *_):
        seen.update(model.state_dict())
        return ""

    monkeypatch.setattr("builder.experiments.train.answer", sample)
    found = checkpoint(trained(tmp_path, EMA).path)
    assert same({name: seen[name] for name in found["averaged"]}, found["averaged"])


@pytest.mark.parametrize("options", AVERAGES.values(), ids=AVERAGES)
def test_cut_short_it_ends_as_the_whole_run(tmp_path, monkeypatch, options):
    folders = [tmp_path / "whole", tmp_path / "cut"]
    for folder in folders:
        folder.mkdir()
    whole = trained(folders[0], *options).path
    for step in (3, 8):  # within an interval, and after it was validated
        with monkeypatch.context() as patch:
            plant(patch, step, partial(os.kill, os.getpid(), signal.SIGINT))
            with pytest.raises(Stopped, match=f"after step {step}"):
                trained(folders[1], *options) if step == 3 else resumed(only_run(folders[1]))
    path = resumed(only_run(folders[1])).path
    for name in ("last", "best"):
        for key in STATE:
            assert same(checkpoint(path, name)[key], checkpoint(whole, name)[key]), (name, key)
    assert rows(path) == rows(whole)


@pytest.mark.parametrize("options", AVERAGES.values(), ids=AVERAGES)
def test_the_best_checkpoint_holds_what_was_validated_and_what_is_trained_on(tmp_path, options):
    path = trained(tmp_path, *options, "trainer.val_check_interval=100").path  # after the last step alone
    best, last = checkpoint(path, "best"), checkpoint(path)
    assert same(best["averaged"], last["averaged"]) and same(best["state_dict"], last["state_dict"])
    assert not same(best["averaged"]["final_norm.weight"], best["state_dict"]["final_norm.weight"])
