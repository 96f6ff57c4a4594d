"""Plain causal attention never writes a mask out: with the fast kernel a T x T tensor is not even asked for."""

import pytest
import torch

from builder import registry
from builder.components.kernel import Scoring
from builder.model.mask import Mask
from builder.model.span import Span


class WrittenOut(AssertionError):
    """A mask was materialised."""


@pytest.fixture
def no_dense(monkeypatch):
    def refuse(*_):
        raise WrittenOut

    monkeypatch.setattr(Mask, "_write_out", refuse)
    monkeypatch.setattr(Mask, "dense", refuse)


def attend(mask, queries, keys):
    q, k = torch.randn(1, queries, 2, 8), torch.randn(1, keys, 2, 8)
    return registry.find("kernel", "sdpa").attend(q, k, k, Scoring(mask, 1.0))


@pytest.mark.parametrize(
    ("mask", "queries", "keys"),
    [
        (Mask(), 6, 6),
        (Mask(window=6), 6, 6),
        (Mask(window=100), 6, 6),
        (Mask(past=5), 1, 6),
        (Mask(past=5, window=6), 1, 6),
        (Mask(causal=False), 6, 6),
        (Mask(causal=False), 3, 6),
        (Mask(past=9, window=6, span=Span(4, 6, turn=4)), 1, 6),
    ],
)
def test_what_needs_no_tensor_makes_none(no_dense, mask, queries, keys):
    assert attend(mask, queries, keys).isfinite().all()


@pytest.mark.parametrize(
    ("mask", "queries", "keys"),
    [
        (Mask(window=5), 6, 6),
        (Mask(real=torch.ones(1, 6, dtype=torch.bool)), 6, 6),
        (Mask(segments=torch.zeros(1, 6)), 6, 6),
        (Mask(past=3), 3, 6),
        (Mask(past=5, window=5), 1, 6),
        (Mask(past=9, window=5, span=Span(4, 6, turn=4)), 1, 6),
    ],
)
def test_what_needs_a_tensor_is_seen_to_make_one(no_dense, mask, queries, keys):
    with pytest.raises(WrittenOut):
        attend(mask, queries, keys)
