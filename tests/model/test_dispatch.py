"""Tokens to experts and back against a loop over places, the gradients against differences."""

import pytest
import torch

from builder.model.dispatch import ByExpert, ByToken, count

X, D = 3, 4
# the drawing of builder/model/dispatch.py
DRAWN = [[2, 0], [1, 2], [0, 2]]
# experts of each token, X where a place is empty
PLACES = {
    "drawn": DRAWN,
    "a place is empty": [[2, 0], [3, 1], [1, 3], [3, 3]],
    "all to one": [[1], [1], [1]],
    "nobody goes": [[3, 3], [3, 3]],
    "no token": [],
}


def made(places, top_k=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    experts = torch.tensor(places, dtype=torch.int64).view(len(places), -1 if places else top_k)
    weights = torch.rand(experts.shape, generator=generator, dtype=torch.float64)
    return experts, weights.masked_fill(experts == X, 0).requires_grad_()


def in_order(experts):
    """(token, choice) of the rows as the experts hold them: by expert, then by choice, then by token; nobody's last."""
    places = [(experts[n, c].item(), c, n) for n in range(experts.shape[0]) for c in range(experts.shape[1])]
    return [(token, choice) for _, choice, token in sorted(places)]


def test_the_drawing():
    dispatch = ByToken(*made(DRAWN), X)
    assert dispatch.token.tolist() == [2, 0, 1, 0, 1, 2] and dispatch.counts.tolist() == [2, 1, 3]


@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
def test_rows_are_the_tokens_sorted_by_expert(places):
    experts, weights = made(places)
    dispatch, x = ByToken(experts, weights, X), torch.randn(len(places), D, dtype=torch.float64)
    rows, order, going = dispatch.spread(x), in_order(experts), (experts < X).sum()
    assert rows.shape == (experts.numel(), D) and dispatch.counts.sum() == going
    assert dispatch.counts.tolist() == [(experts == e).sum() for e in range(X)]
    for row, (token, _) in enumerate(order[:going]):
        assert torch.equal(rows[row], x[token])


@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
def test_tokens_get_their_rows_weighed(places):
    experts, weights = made(places)
    y = torch.randn(experts.numel(), D, dtype=torch.float64)
    expected = torch.zeros(len(places), D, dtype=torch.float64)
    for row, (token, choice) in enumerate(in_order(experts)):
        expected[token] += weights[token, choice].detach() * y[row]
    assert torch.allclose(ByToken(experts, weights, X).gather(y), expected, atol=1e-12)


@pytest.mark.parametrize("places", [places for places in PLACES.values() if places], ids=lambda p: f"{len(p)} tokens")
def test_the_gradients_of_tokens_that_choose_are_those_of_differences(places):
    experts, weights = made(places)
    x = torch.randn(len(places), D, dtype=torch.float64, requires_grad=True)
    y = torch.randn(experts.numel(), D, dtype=torch.float64, requires_grad=True)

    def through(x, weights):
        dispatch = ByToken(experts, weights, X)
        return dispatch.gather(dispatch.spread(x) ** 2)

    assert torch.autograd.gradcheck(through, (x, weights))
    assert torch.autograd.gradcheck(lambda y, weights: ByToken(experts, weights, X).gather(y), (y, weights))


def test_experts_that_choose_hold_rows_of_one_number():
    tokens = torch.tensor([[4, 0], [1, 4], [2, 3]])
    weights = torch.rand(3, 2, dtype=torch.float64)
    weights[1, 1] = 0  # nobody's
    dispatch, x = ByExpert(tokens, weights, 5), torch.randn(5, D, dtype=torch.float64)
    assert dispatch.counts.tolist() == [2, 2, 2] and torch.equal(dispatch.spread(x), x[[4, 0, 1, 4, 2, 3]])
    y = torch.randn(6, D, dtype=torch.float64)
    expected = torch.zeros(5, D, dtype=torch.float64)
    for row, (token, weight) in enumerate(zip(tokens.flatten(), weights.flatten(), strict=True)):
        expected[token] += weight * y[row]
    assert torch.allclose(dispatch.gather(y), expected, atol=1e-12)


def test_the_gradients_of_experts_that_choose_are_those_of_differences():
    tokens = torch.tensor([[2, 0], [1, 2]])
    x = torch.randn(3, D, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(2, 2, dtype=torch.float64, requires_grad=True)

    def through(x, weights):
        dispatch = ByExpert(tokens, weights, 3)
        return dispatch.gather(dispatch.spread(x) ** 2)

    assert torch.autograd.gradcheck(through, (x, weights))


def test_nobody_is_counted_for_nobody():
    assert count(torch.tensor([2, 0, 3, 2, 3]), X).tolist() == [1, 0, 2]
    assert count(torch.tensor([], dtype=torch.int64), X).tolist() == [0, 0, 0]


def test_equal_tokens_of_a_batch_get_equal_sums():
    """Nothing is added up in an order that changes: each token's bits are its own, whatever stands beside it."""
    experts, weights = made([[0, 1, 2]] * 6)
    weights = weights[:1].detach().expand(6, -1).float()
    y = torch.randn(3, 1, D).expand(-1, 6, -1).flatten(0, 1)  # each expert gives all tokens the same
    out = ByToken(experts, weights, X).gather(y)
    assert (out == out[:1]).all()
