"""The gradient of a step is that of the whole batch at once, however the batch is split into micro-batches."""

from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.plugins.precision import Precision

from builder import build
from builder.components.ffn.moe import MoE
from builder.training.ranks import Ranks
from builder.training.step import Step
from builder.training.tallies import Tallies
from tests.tiny_run import MOE, spec_of

KINDS = {
    "dense": (),
    "aux_loss": (*MOE, "model.moe.balance.aux_loss=0.5"),
    "z_loss": (
        *MOE,
        "model.moe.balance.aux_loss=0",
        "model.moe.balance.bias_speed=0.1",
        "model.moe.balance.z_loss=0.5",
    ),
    "sequence_loss": (*MOE, "model.moe.balance.aux_loss=0", "model.moe.balance.sequence_loss=0.5"),
    "noisy": (*MOE, "model.moe.balance.aux_loss=0.5", "model/router@model.moe.router=noisy_topk"),
}


def batch_of(rows, padded=False):
    """Tokens of unlike rows; with padding of unlike lengths, one row holding nothing at all."""
    tokens = torch.randint(0, 250, (rows, 17), generator=torch.Generator().manual_seed(0))
    real = torch.arange(17) < torch.tensor([17, 3, 9, 0, 12, 5, 17][:rows])[:, None]
    return {"tokens": tokens.masked_fill(~real, 257), "attention_mask": real} if padded else {"tokens": tokens}


def harness(model, micro_batch):
    """As much of a LightningModule as a step asks for."""
    return SimpleNamespace(
        trainer=SimpleNamespace(precision_plugin=Precision(), strategy=SimpleNamespace(model=model)),
        ranks=Ranks(),
        micro_batch=micro_batch,
        global_step=3,
        device=torch.device("cpu"),
        manual_backward=lambda loss: loss.backward(),
        tallies=Tallies(),
    )


def gradient(spec, batch, micro_batch):
    """(gradient by name in float64, summed loss, targets, tallies, what is logged)."""
    model = build(spec.model, seed=0, dtype=torch.float64).train()
    training = harness(model, micro_batch)
    total, targets, told = Step(spec, model).backward(training, batch)
    training.tallies.settle(lambda tally: tally)
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return gradients, total, targets, list(training.tallies.window.values()), told


def plain(spec, batch):
    """The gradient of the whole batch in one pass, by nothing but torch and the formula."""
    model = build(spec.model, seed=0, dtype=torch.float64).train()
    tokens, real = batch["tokens"], batch.get("attention_mask")
    output = model(tokens[:, :-1], attention_mask=None if real is None else real[:, :-1])
    losses = torch.nn.functional.cross_entropy(output.logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    counted = torch.ones_like(losses) if real is None else real[:, 1:].flatten().double()
    loss = (losses * counted).sum() / counted.sum() + sum(output.aux.losses.values())
    loss.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def distance(one, other):
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "noisy"])
def test_one_part_is_the_formula(tmp_path, kind, padded):
    spec, batch = spec_of(tmp_path, *KINDS[kind], "batch.sequences=7"), batch_of(7, padded)
    assert distance(gradient(spec, batch, 7)[0], plain(spec, batch)) < 1e-7  # the loss is summed in float32


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("micro_batch", [1, 3])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "noisy"])
def test_no_split_changes_the_gradient(tmp_path, kind, micro_batch, padded):
    spec, batch = spec_of(tmp_path, *KINDS[kind], "batch.sequences=7"), batch_of(7, padded)
    whole, total, targets, tallies, told = gradient(spec, batch, 7)
    parts, part_total, part_targets, part_tallies, part_told = gradient(spec, batch, micro_batch)
    assert distance(parts, whole) < 1e-7
    assert float(part_total) == pytest.approx(float(total), rel=1e-6)
    assert targets == part_targets == (batch["attention_mask"][:, 1:].sum() if padded else 7 * 16)
    assert all(map(torch.equal, tallies, part_tallies))
    assert told.keys() == part_told.keys()
    assert {name: float(value) for name, value in part_told.items()} == pytest.approx(
        {name: float(value) for name, value in told.items()}, rel=1e-6
    )


def test_a_loss_balanced_in_each_part_is_another(tmp_path, monkeypatch):
    """The negative control: without the counts of the whole batch, micro-batches show."""
    spec, batch = spec_of(tmp_path, *KINDS["aux_loss"], "batch.sequences=7"), batch_of(7, padded=True)
    whole = gradient(spec, batch, 7)[0]
    monkeypatch.setattr(MoE, "counts_ahead", False)
    assert distance(gradient(spec, batch, 1)[0], whole) > 1e-5


def test_a_mean_of_means_is_another(tmp_path, monkeypatch):
    """The negative control of unequal counts: the mean of the parts' means isn't the mean over targets."""
    spec, batch = spec_of(tmp_path, "batch.sequences=7"), batch_of(7, padded=True)
    whole = gradient(spec, batch, 7)[0]
    step_losses = gradient(spec, {key: value[:3] for key, value in batch.items()}, 3)[0]
    rest = gradient(spec, {key: value[3:] for key, value in batch.items()}, 4)[0]
    assert distance({name: (step_losses[name] + rest[name]) / 2 for name in whole}, whole) > 1e-4


def test_what_is_counted_ahead_is_drawn_as_what_is_trained(tmp_path):
    """A noisy router draws the same noise in both passes, so that the counts are those of the pass that is trained."""
    spec, batch = spec_of(tmp_path, *KINDS["noisy"], "batch.sequences=7"), batch_of(7)
    model = build(spec.model, seed=0, dtype=torch.float64).train()
    step, training = Step(spec, model), harness(model, 3)
    tasks = step.objective.task(batch).split(3)
    ahead = step._count(training, tasks)
    step.backward(training, batch)
    training.tallies.settle(lambda tally: tally)
    assert all(torch.equal(training.tallies.window[module][:-2], counts) for module, counts in ahead.items())
    assert ahead
