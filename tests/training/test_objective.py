"""What is learnt and counted: targets shifted once, padding told by a mask, losses as means over targets."""

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from builder import build, registry
from builder.model.language_model import Output
from builder.training.module import Training
from tests.tiny_run import spec_of


@pytest.fixture
def objective():
    kind = registry.find(("objective",), "next_token")
    return kind(kind.Config())


@pytest.fixture
def training(tmp_path):
    """The LightningModule of the tiny run, without a trainer; a corpus of 0.5 bytes a token stands beside it."""
    spec = spec_of(tmp_path)
    module = Training(spec, build(spec.model, seed=0), SimpleNamespace(val_bytes_per_token=0.5))  # type: ignore[arg-type]
    module.logged = {}
    module.log = lambda name, value: module.logged.update({name: float(value)})
    module.log_dict = module.logged.update
    module._over_ranks = lambda value: value
    return module


def row(*ids: int):
    return torch.tensor([ids])


def test_pad_that_equals_eos_hides_no_eos(objective):
    tokens, real = row(5, 6, 2, 2, 2, 2), row(1, 1, 1, 0, 0, 0).bool()
    task = objective.task({"tokens": tokens, "attention_mask": real})
    assert task.targets[task.loss_mask].tolist() == [6, 2]
    assert task.inputs.tolist() == [[5, 6, 2, 2, 2]]
    assert task.attention_mask.tolist() == [[True, True, True, False, False]]
    logits = torch.randn(1, 5, 9)
    total, count = objective.loss(logits, task)
    torch.testing.assert_close(total / count, F.cross_entropy(logits[0, :2], torch.tensor([6, 2])))


def test_eos_inside_a_packed_stream_is_a_target(objective):
    task = objective.task({"tokens": row(5, 2, 7, 8, 2)})
    assert task.loss_mask is None
    assert task.targets.tolist() == [[2, 7, 8, 2]]
    assert objective.loss(torch.randn(1, 4, 9), task)[1] == 4


def test_loss_is_in_float32_whatever_the_logits_are(objective):
    task = objective.task({"tokens": row(5, 2, 7)})
    total, count = objective.loss(torch.randn(1, 2, 9).bfloat16(), task)
    assert total.dtype == count.dtype == torch.float32


def test_targets_are_shifted_once(training):
    ids = torch.randint(0, 256, (4, 17))
    loss = training.training_step({"tokens": ids}, 0)
    with torch.no_grad():
        logits = training.model(ids).logits
    by_hand = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    torch.testing.assert_close(loss, by_hand, atol=1e-6, rtol=0)


def test_rows_do_not_leak_into_each_other(training, objective):
    ids = torch.randint(0, 256, (2, 17))
    other = ids.clone()
    other[1, 0] = (other[1, 0] + 1) % 256

    def losses(tokens):
        task = objective.task({"tokens": tokens})
        logits = training.model(task.inputs).logits
        return F.cross_entropy(logits.transpose(1, 2), task.targets, reduction="none")  # (B, T)

    before, after = losses(ids), losses(other)
    assert torch.equal(before[0], after[0])
    assert not torch.equal(before[1], after[1])


def test_learns_the_next_token_and_not_the_one_after(training):
    ids = torch.arange(68).view(4, 17) % 4  # 0 1 2 3 0 1 2 3 ...
    optimizer = torch.optim.Adam(training.model.parameters(), lr=1e-2)
    for step in range(60):
        optimizer.zero_grad()
        training.training_step({"tokens": ids}, step).backward()
        optimizer.step()
    assert training.model(row(0, 1)).logits[0, -1].argmax() == 2


def test_a_batch_without_targets_costs_nothing(training):
    batch = {"tokens": torch.ones(2, 17, dtype=torch.int64), "attention_mask": torch.zeros(2, 17, dtype=torch.bool)}
    loss = training.training_step(batch, 0)
    assert loss == 0
    loss.backward()
    gradients = [parameter.grad for parameter in training.model.parameters() if parameter.grad is not None]
    assert gradients
    assert all(not gradient.any() for gradient in gradients)


def test_padding_is_neither_seen_nor_counted(training):
    ids, real = torch.randint(0, 256, (2, 17)), torch.ones(2, 17, dtype=torch.bool)
    real[1, 9:] = False
    other = ids.clone()
    other[1, 9:] = 0
    first, second = (training.training_step({"tokens": tokens, "attention_mask": real}, 0) for tokens in (ids, other))
    assert torch.equal(first, second)
    alone = [training.training_step({"tokens": part}, 0) for part in (ids[:1], ids[1:, :9])]
    torch.testing.assert_close(first, (alone[0] * 16 + alone[1] * 8) / 24)


def of_loss(nats: float):
    """A model whose every prediction of token 0 costs `nats`, over two tokens."""

    def forward(tokens, attention_mask=None):
        logits = torch.tensor([0.0, math.log(math.expm1(nats))]).expand(*tokens.shape, 2)
        return Output(logits, logits, None)  # type: ignore[arg-type]

    return forward


def test_validation_is_a_mean_over_targets(training):
    training.on_validation_epoch_start()
    for nats, targets in ((2.0, 9), (4.0, 1)):
        training._forward = of_loss(nats)
        training.validation_step({"tokens": torch.zeros(1, targets + 1, dtype=torch.int64)}, 0)
    training.on_validation_epoch_end()
    assert training.logged["val/loss"] == pytest.approx(2.2, abs=1e-6)
    assert training.logged["val/perplexity"] == pytest.approx(9.0250, abs=1e-4)
    assert training.logged["val/bits_per_byte"] == pytest.approx(2.2 / math.log(2) / 0.5, abs=1e-5)
    training.on_validation_epoch_start()  # nothing is carried over into the next one
    training.validation_step({"tokens": torch.zeros(1, 3, dtype=torch.int64)}, 0)
    training.on_validation_epoch_end()
    assert training.logged["val/loss"] == pytest.approx(4.0, abs=1e-6)
