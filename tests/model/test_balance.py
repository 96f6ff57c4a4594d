"""The losses that spread tokens over experts: by hand, by a loop, against transformers; padding changes none."""

import math

import pytest
import torch
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from builder.components.router.topk import TopK
from builder.model.balance import aux_loss, sequence_loss, z_loss

X, K = 4, 2


def drawn(rows, length, seed=0):
    """logits, probabilities and choices of B rows of T tokens, flat; float64."""
    logits = 2 * torch.randn(rows * length, X, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return logits, logits.softmax(-1), logits.topk(K, dim=-1).indices


def by_loop(probabilities, chosen):
    """X sum_e f_e p_e (chapter 3.9), f the share of choices."""
    choices = [e for row in chosen.tolist() for e in row]
    mean = [sum(row[e] for row in probabilities.tolist()) / len(probabilities) for e in range(X)]
    return X * sum(choices.count(e) / len(choices) * mean[e] for e in range(X))


def padded(rows, length, pads):
    """(real (N,), flat) of rows that stand behind so many pads; `flat` lays (N, X) numbers there, and noise in pads."""
    real = torch.arange(length + pads).expand(rows, -1) >= pads

    def lay(values, filler):
        out = filler.expand(rows, length + pads, -1).clone()
        out[:, pads:] = values.view(rows, length, -1)
        return out.flatten(0, 1)

    return real.flatten(), lay


def test_even_is_one():
    chosen = torch.tensor([[0], [1], [2], [3]])
    assert aux_loss(torch.full((4, X), 1 / X), chosen, None) == 1
    assert aux_loss(torch.eye(X), chosen, None) == 1
    assert aux_loss(torch.full((4, X), 1 / X), torch.tensor([[0, 1], [2, 3], [0, 2], [1, 3]]), None) == 1


def test_all_to_one_is_the_number_of_experts():
    assert aux_loss(torch.eye(X)[[2] * 5], torch.tensor([[2]] * 5), None) == X
    both = torch.tensor([[0.5, 0.5, 0, 0]] * 5)
    assert aux_loss(both, torch.tensor([[0, 1]] * 5), None) == X / 2, "two choices can't both fall on one"


def test_a_small_example_by_hand():
    """f = (2/3, 1/3), p = ((.9 + .6 + .2) / 3, (.1 + .4 + .8) / 3) = (17/30, 13/30); 2 (34 + 13) / 90 = 94/90."""
    probabilities = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]], dtype=torch.float64)
    assert aux_loss(probabilities, torch.tensor([[0], [0], [1]]), None).item() == pytest.approx(94 / 90, abs=1e-12)


def test_equals_the_loop():
    _, probabilities, chosen = drawn(3, 5)
    assert aux_loss(probabilities, chosen, None).item() == pytest.approx(by_loop(probabilities, chosen), abs=1e-12)


@pytest.mark.parametrize("pads", [0, 2])
def test_transformers_has_k_times_as_much(pads):
    logits, probabilities, chosen = drawn(3, 5)
    real, lay = padded(3, 5, pads)
    laid = lay(logits, torch.randn(1, 1, X, dtype=torch.float64))
    attention_mask = real.view(3, -1).long() if pads else None
    theirs = load_balancing_loss_func((laid,), X, K, attention_mask)
    ours = aux_loss(laid.softmax(-1), torch.where(real[:, None], laid.topk(K, dim=-1).indices, X), real)
    assert theirs.item() == pytest.approx(K * ours.item(), abs=1e-6)  # theirs in float32
    assert ours.item() == pytest.approx(aux_loss(probabilities, chosen, None).item(), abs=1e-12)


def test_the_z_loss_is_its_formula():
    logits, *_ = drawn(3, 5)
    expected = sum(math.log(sum(math.exp(logit) for logit in row)) ** 2 for row in logits.tolist()) / 15
    assert z_loss(logits, None).item() == pytest.approx(expected, abs=1e-12)
    assert z_loss(logits + 3, None) > z_loss(logits, None)


def test_the_sequence_loss_is_the_mean_over_sequences():
    _, probabilities, chosen = drawn(3, 5)
    expected = sum(by_loop(probabilities[r : r + 5], chosen[r : r + 5]) for r in (0, 5, 10)) / 3
    assert sequence_loss(probabilities, chosen, None, 3).item() == pytest.approx(expected, abs=1e-12)
    assert abs(expected - by_loop(probabilities, chosen)) > 1e-3


LOSSES = {
    "aux_loss": lambda logits, chosen, real, rows: aux_loss(logits.softmax(-1), chosen, real),
    "z_loss": lambda logits, chosen, real, rows: z_loss(logits, real),
    "sequence_loss": lambda logits, chosen, real, rows: sequence_loss(logits.softmax(-1), chosen, real, rows),
}


def value_and_gradient(loss, logits, chosen, real, rows):
    logits = logits.clone().requires_grad_()
    value = LOSSES[loss](logits, chosen, real, rows)
    return value.item(), torch.autograd.grad(value, logits)[0]


@pytest.mark.parametrize("pads", [1, 4])
@pytest.mark.parametrize("loss", LOSSES)
def test_padding_changes_nothing(loss, pads):
    logits, _, chosen = drawn(3, 5)
    real, lay = padded(3, 5, pads)
    laid, places = lay(logits, torch.randn(1, 1, X, dtype=torch.float64)), lay(chosen, torch.tensor([[[X] * K]]))
    value, gradient = value_and_gradient(loss, laid, places, real, 3)
    expected, wanted = value_and_gradient(loss, logits, chosen, None, 3)
    assert value == pytest.approx(expected, abs=1e-12)
    assert torch.allclose(gradient[real], wanted, atol=1e-12) and (gradient[~real] == 0).all()
    unmasked, _ = value_and_gradient(loss, laid, laid.topk(K, dim=-1).indices, None, 3)
    assert abs(unmasked - expected) > 1e-3, "padding that counts is seen"


@pytest.mark.parametrize("loss", LOSSES)
def test_a_row_of_padding_alone_changes_nothing(loss):
    logits, _, chosen = drawn(3, 5)
    laid, places = torch.cat((logits, logits[:5])), torch.cat((chosen, torch.full((5, K), X)))
    value, _ = value_and_gradient(loss, laid, places, torch.arange(20) < 15, 4)
    assert value == pytest.approx(value_and_gradient(loss, logits, chosen, None, 3)[0], abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_padding_alone_is_zero(loss):
    logits, *_ = drawn(2, 3)
    value, gradient = value_and_gradient(loss, logits, torch.full((6, K), X), torch.zeros(6, dtype=torch.bool), 2)
    assert value == 0 and (gradient == 0).all()


@pytest.mark.parametrize("loss", ["aux_loss", "sequence_loss"])
@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
def test_a_step_takes_probability_from_the_overloaded(loss, score):
    router = TopK(TopK.Config(name="topk", score=score), 6, X, 1).double()
    torch.nn.init.normal_(router.weight, std=0.1)
    x = torch.randn(24, 6, dtype=torch.float64) + 1
    with torch.no_grad():
        router.weight[2] += 0.3  # most tokens go there
    before = router.route(x, None, None)
    assert before.asked.argmax() == 2 and before.asked[2] > 12
    value = {"aux_loss": lambda: aux_loss(before.probabilities, before.chosen, None),
             "sequence_loss": lambda: sequence_loss(before.probabilities, before.chosen, None, 2)}[loss]()  # fmt: skip
    value.backward()
    with torch.no_grad():
        router.weight -= 0.1 * router.weight.grad
    after = router.route(x, None, None)
    assert after.probabilities[:, 2].mean() < before.probabilities[:, 2].mean() - 1e-3


def test_sigmoid_scores_are_averaged_as_shares():
    """DeepSeek-V3, 2.1.2: s_e / sum_j s_j."""
    router = TopK(TopK.Config(name="topk", score="sigmoid"), 6, X, 2).double()
    torch.nn.init.normal_(router.weight)
    routing = router.route(torch.randn(7, 6, dtype=torch.float64), None, None)
    assert torch.allclose(routing.probabilities.sum(-1), torch.ones(7, dtype=torch.float64))
    for shares, logits in zip(routing.probabilities.tolist(), routing.logits.tolist(), strict=True):
        scores = [1 / (1 + math.exp(-logit)) for logit in logits]
        assert shares == pytest.approx([score / sum(scores) for score in scores], abs=1e-12)
