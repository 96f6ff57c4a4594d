"""What is learnt and counted: targets shifted once, padding told by a mask, losses as means over targets, or fused."""

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from builder import build, registry
from builder.model import pieces
from builder.training.losses import Losses
from builder.training.module import Training
from builder.training.ranks import Ranks
from tests.tiny_run import spec_of


@pytest.fixture
def objective():
    kind = registry.find(("objective",), "next_token")
    return kind(kind.Config())


@pytest.fixture
def losses(tmp_path, objective):
    """losses(*overrides): the `Losses` of the tiny run's model, in training."""

    def make(*overrides):
        spec = spec_of(tmp_path, *overrides)
        return Losses(build(spec.model, seed=0).train(), objective, spec)

    return make


def mean(losses, **batch):
    total, count, _ = losses(batch)
    return total / count.clamp_min(1)


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


def test_targets_are_shifted_once(losses):
    ids, plain = torch.randint(0, 256, (4, 17)), losses()
    with torch.no_grad():
        logits = plain.model(ids).logits
    by_hand = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    torch.testing.assert_close(mean(plain, tokens=ids), by_hand, atol=1e-6, rtol=0)


def test_rows_do_not_leak_into_each_other(losses, objective):
    ids, plain = torch.randint(0, 256, (2, 17)), losses()
    other = ids.clone()
    other[1, 0] = (other[1, 0] + 1) % 256

    def each(tokens):
        task = objective.task({"tokens": tokens})
        return F.cross_entropy(
            plain.model(task.inputs).logits.transpose(1, 2), task.targets, reduction="none"
        )  # (B, T)

    before, after = each(ids), each(other)
    assert torch.equal(before[0], after[0])
    assert not torch.equal(before[1], after[1])


@pytest.mark.parametrize("fused", ["false", "true"])
def test_learns_the_next_token_and_not_the_one_after(losses, fused):
    learner = losses(f"fused_loss={fused}")
    ids = torch.arange(68).view(4, 17) % 4  # 0 1 2 3 0 1 2 3 ...
    optimizer = torch.optim.Adam(learner.model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        mean(learner, tokens=ids).backward()
        optimizer.step()
    assert learner.model(row(0, 1)).logits[0, -1].argmax() == 2


@pytest.mark.parametrize("fused", ["false", "true"])
def test_a_batch_without_targets_costs_nothing(losses, fused):
    plain = losses(f"fused_loss={fused}")
    batch = {"tokens": torch.ones(2, 17, dtype=torch.int64), "attention_mask": torch.zeros(2, 17, dtype=torch.bool)}
    loss = mean(plain, **batch)
    assert loss == 0
    loss.backward()
    gradients = [parameter.grad for parameter in plain.model.parameters() if parameter.grad is not None]
    assert gradients
    assert all(not gradient.any() for gradient in gradients)


@pytest.mark.parametrize("fused", ["false", "true"])
def test_padding_is_neither_seen_nor_counted(losses, fused):
    plain = losses(f"fused_loss={fused}")
    ids, real = torch.randint(0, 256, (2, 17)), torch.ones(2, 17, dtype=torch.bool)
    real[1, 9:] = False
    other = ids.clone()
    other[1, 9:] = 0
    first, second = (mean(plain, tokens=tokens, attention_mask=real) for tokens in (ids, other))
    assert torch.equal(first, second)
    alone = [mean(plain, tokens=part) for part in (ids[:1], ids[1:, :9])]
    torch.testing.assert_close(first, (alone[0] * 16 + alone[1] * 8) / 24)


def test_validation_is_a_mean_over_targets(tmp_path, monkeypatch):
    spec, logged = spec_of(tmp_path), {}
    corpus = SimpleNamespace(val_bytes_per_token=0.5, val=SimpleNamespace(parts=()))
    training = Training(spec, build(spec.model, seed=0), corpus)  # type: ignore[arg-type]
    monkeypatch.setattr(Training, "ranks", Ranks())
    monkeypatch.setattr(training, "log_dict", logged.update)

    training.owners = [0]

    def validated(*batches):
        training.on_validation_epoch_start()
        for nats, targets in batches:
            count = torch.tensor(float(targets))
            monkeypatch.setattr(
                training.step.losses,
                "judged",
                lambda _, count=count, nats=nats: (nats * count, count, {"right": count}),
            )
            training.validation_step({"tokens": torch.zeros(1, 17, dtype=torch.int64)}, 0)
        training.on_validation_epoch_end()
        return logged

    validated((2.0, 9), (4.0, 1))
    assert logged["val/loss"] == pytest.approx(2.2, abs=1e-6) and logged["val/accuracy"] == 1.0
    assert logged["val/perplexity"] == pytest.approx(9.0250, abs=1e-4)
    assert logged["val/bits_per_byte"] == pytest.approx(2.2 / math.log(2) / 0.5, abs=1e-5)
    validated((4.0, 2))  # nothing is carried over into the next one
    assert logged["val/loss"] == pytest.approx(4.0, abs=1e-6)


# fused: the loss in pieces

HEADS = {
    "tied": [],
    "untied": ["model.tie_embeddings=false"],
    "finished": ["model.head.bias=true", "model.head.scale=0.25", "model.head.softcap=3.0"],
}


def gradients(losses, batch):
    """(summed loss, targets, every gradient of the mean)."""
    losses.model.zero_grad()
    total, count, _ = losses(batch)
    (total / count).backward()
    return total.detach(), count, {name: p.grad.clone() for name, p in losses.model.named_parameters()}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("padded", [False, True])
def test_fused_is_unfused(losses, monkeypatch, head, padded):
    monkeypatch.setitem(pieces.ROWS, "cpu", 7)  # 48 rows: the last piece is shorter
    batch = {"tokens": torch.randint(0, 256, (3, 17), generator=torch.Generator().manual_seed(0))}
    if padded:
        batch["attention_mask"] = torch.arange(17) < torch.tensor([[17], [5], [0]])
    found, expected = (gradients(losses(*HEADS[head], f"fused_loss={fused}"), batch) for fused in ("true", "false"))
    assert found[0].dtype == torch.float32 and found[1] == expected[1] == (20 if padded else 48)
    torch.testing.assert_close(found[0], expected[0], atol=0, rtol=1e-6)
    for name, gradient in expected[2].items():
        assert (found[2][name] - gradient).abs().max() <= 1e-5 * gradient.abs().max(), name


@torch.no_grad()
def test_the_objective_says_what_a_row_costs(losses, objective, monkeypatch):
    monkeypatch.setitem(pieces.ROWS, "cpu", 7)
    monkeypatch.setattr(objective, "nats", lambda logits, *_: torch.tensor(2.0 * len(logits)))
    for fused in ("true", "false"):
        assert losses(f"fused_loss={fused}")({"tokens": torch.randint(0, 256, (3, 17))})[0] == 2 * 48


@pytest.mark.skipif(not hasattr(F, "linear_cross_entropy"), reason="came with torch 2.13")
def test_pieces_sum_to_what_torch_computes(monkeypatch):
    monkeypatch.setitem(pieces.ROWS, "cpu", 10)
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(n, 8, generator=generator).requires_grad_() for n in (33, 50))
    bias, ids = torch.randn(50, generator=generator).requires_grad_(), torch.randint(0, 50, (33,), generator=generator)
    ours = pieces.summed(x, weight, bias, lambda z, rows: F.cross_entropy(z, ids[rows], reduction="sum"))
    theirs = F.linear_cross_entropy(x, weight, ids, linear_bias=bias, reduction="sum")
    torch.testing.assert_close(ours, theirs, atol=0, rtol=1e-6)
    for one, other in zip(
        *(torch.autograd.grad(loss * 0.3, (x, weight, bias)) for loss in (ours, theirs)), strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_in_bfloat16_the_sum_stays_in_float32(monkeypatch):
    """Summed in bfloat16, 3,000 losses are off by a percent; and small gradients would vanish from their sum."""
    monkeypatch.setitem(pieces.ROWS, "cpu", 30)
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(n, 8, generator=generator).bfloat16().requires_grad_() for n in (3000, 50))
    ids = torch.randint(0, 50, (3000,), generator=generator)
    exact_weight = weight.detach().double().requires_grad_()
    exact = F.cross_entropy(x.detach().double() @ exact_weight.T, ids, reduction="sum")
    found = pieces.summed(x, weight, None, lambda z, rows: F.cross_entropy(z.float(), ids[rows], reduction="sum"))
    assert found.dtype == torch.float32 and abs(found - exact) <= 1e-3 * exact
    found.backward()
    exact.backward()
    assert weight.grad.dtype == torch.bfloat16
    assert (weight.grad - exact_weight.grad).abs().max() <= 0.01 * exact_weight.grad.abs().max()


def test_one_can_go_backward_once(losses):
    total, _, _ = losses("fused_loss=true")({"tokens": torch.randint(0, 256, (3, 17))})
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="twice"):
        total.backward()


def test_without_gradients_none_is_computed(losses, monkeypatch):
    fused, batch = losses("fused_loss=true"), {"tokens": torch.randint(0, 256, (3, 17))}
    expected = fused(batch)[0].detach()
    monkeypatch.setattr(torch.autograd, "grad", None)
    with torch.no_grad():
        assert torch.equal(fused(batch)[0], expected)
    with pytest.raises(TypeError):
        fused(batch)


class Largest(TorchDispatchMode):
    """The size of the largest tensor that is made while it is entered."""

    def __init__(self):
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.size = max([self.size, *(leaf.numel() for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor))])
        return out


def test_fused_never_holds_all_logits(losses, monkeypatch):
    monkeypatch.setitem(pieces.ROWS, "cpu", 64)
    batch, sizes = {"tokens": torch.randint(0, 256, (32, 17))}, {}
    for fused in ("true", "false"):
        made = losses(f"fused_loss={fused}", "model.vocab_size=4096")
        with Largest() as largest:
            made(batch)[0].backward()
        sizes[fused] = largest.size
    assert sizes == {"true": 64 * 4096, "false": 32 * 16 * 4096}, "a piece has 64 rows"


def test_fused_runs_on_meta(losses):
    fused = losses("fused_loss=true", "model.vocab_size=300")
    fused.model.to("meta")
    total, count, _ = fused({"tokens": torch.zeros(3, 17, dtype=torch.int64, device="meta")})
    (total / count).backward()
    assert fused.model.embedding.weight.grad.shape == (300, 16)
