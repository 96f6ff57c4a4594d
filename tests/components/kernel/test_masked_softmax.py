"""The masked softmax of chapter 3.2.2 against a float64 loop over each row's visible set.

The convex hull of the values, and the sections around it: documents/test_chapter_3.py.
"""

import math

import pytest
import torch

from builder.components.kernel.eager import masked_softmax


def by_hand(scores, visible):
    """Weights of each row, a Python loop: exp(s - m) / sum over the visible, zeros where nothing is visible."""
    out = torch.zeros_like(scores)
    for i, (row, sees) in enumerate(zip(scores.tolist(), visible.tolist(), strict=True)):
        seen = [j for j, yes in enumerate(sees) if yes]
        if seen:
            largest = max(row[j] for j in seen)
            total = math.fsum(math.exp(row[j] - largest) for j in seen)
            for j in seen:
                out[i, j] = math.exp(row[j] - largest) / total
    return out


def case(scale=1.0, rows=40, keys=7):
    scores = torch.randn(rows, keys, dtype=torch.float64) * scale
    visible = torch.rand(rows, keys) < 0.5
    visible[0], visible[1] = False, True
    return scores, visible


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_equals_the_loop_over_the_visible_set(scale):
    scores, visible = case(scale)
    assert torch.allclose(masked_softmax(scores, visible), by_hand(scores, visible), atol=1e-14)
    assert (masked_softmax(scores, visible) - by_hand(scores, visible.roll(1, 0))).abs().max() > 1e-2


def test_equals_the_loop_when_everything_is_visible():
    scores, visible = case()
    everything = torch.ones_like(visible)
    for mask in (None, everything):
        assert torch.allclose(masked_softmax(scores, mask), by_hand(scores, everything), atol=1e-14)


def test_hidden_scores_of_any_size_change_nothing():
    scores, visible = case()
    loud = torch.where(visible, scores, 1e9)
    assert torch.equal(masked_softmax(loud, visible), masked_softmax(scores, visible))
    assert not torch.equal(masked_softmax(loud, None), masked_softmax(scores, None))


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_rows_sum_to_one_and_hidden_weights_are_exactly_zero(scale):
    scores, visible = case(scale)
    weights = masked_softmax(scores, visible)
    assert torch.allclose(weights[1:].sum(-1), visible[1:].any(-1).double(), atol=1e-14)
    assert (weights[~visible] == 0).all() and (weights >= 0).all()


def test_weights_zeroed_after_the_softmax_would_not_sum_to_one():
    scores, visible = case()
    afterwards = torch.softmax(scores, -1) * visible  # what chapter 3.2.2 warns of
    assert (afterwards[visible.any(-1)].sum(-1) - 1).abs().max() > 1e-2


def test_a_row_that_sees_nothing_is_zero_with_finite_zero_gradients():
    scores, visible = case()
    scores.requires_grad_()
    weights = masked_softmax(scores, visible)
    (weights * torch.randn_like(weights)).sum().backward()
    assert (weights[0] == 0).all() and (scores.grad[0] == 0).all()
    assert scores.grad.isfinite().all() and scores.grad[1].abs().max() > 1e-3
    bare = torch.softmax(scores.detach().masked_fill(~visible, -torch.inf), -1)
    assert bare[0].isnan().all(), "the bare formula is what this guards against"


def test_the_gradient_is_that_of_the_formula():
    scores, visible = case(rows=6)
    assert torch.autograd.gradcheck(lambda s: masked_softmax(s, visible), scores.requires_grad_())
