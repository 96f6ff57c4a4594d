"""Every combination of mask conditions against a Python predicate, and what may share what was written out."""

from dataclasses import replace
from itertools import product

import pytest
import torch

from builder.model.mask import Mask
from builder.model.span import Span

B, S = 2, 7
CPU = torch.device("cpu")
REAL = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 0, 1, 1, 1]], dtype=torch.bool)
SEGMENTS = torch.tensor([[0, 0, 0, 1, 1, 2, 2], [4, 4, 4, 4, 3, 3, 3]])
PREFIX = torch.tensor([[0, 0, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0, 0]], dtype=torch.bool)
SPLITS = [(7, 0), (3, 4), (1, 6)]
CONDITIONS = list(product([True, False], [None, PREFIX], [None, 1, 2, 7, 50], [None, REAL], [None, SEGMENTS], SPLITS))


def sees(mask, b, query, key):
    """Whether, by words: all conditions that are set hold."""
    at = query + mask.past
    within = mask.prefix is not None and mask.prefix[b, key] and mask.prefix[b, at]
    if mask.causal and key > at and not within:
        return False
    if mask.window is not None and abs(key - at) >= mask.window:
        return False
    if mask.real is not None and not mask.real[b, key]:
        return False
    return mask.segments is None or bool(mask.segments[b, at] == mask.segments[b, key])


def predicate(mask, queries):
    cells = [[[sees(mask, b, t, s) for s in range(S)] for t in range(queries)] for b in range(B)]
    return torch.tensor(cells)[:, None]  # (B, 1, T, S)


@pytest.mark.parametrize(("causal", "prefix", "window", "real", "segments", "split"), CONDITIONS)
def test_what_is_written_out_is_the_predicate(causal, prefix, window, real, segments, split):
    queries, past = split
    mask = Mask(causal=causal, prefix=prefix, window=window, real=real, segments=segments, past=past)
    expected = predicate(mask, queries)
    assert torch.equal(mask.dense(queries, S, CPU).expand_as(expected), expected)
    is_causal, visible = mask.lower(queries, S, CPU)
    if is_causal:  # torch's flag stands for the lower triangle
        assert visible is None
        assert torch.equal(torch.ones(queries, S).tril().bool().expand_as(expected), expected)
    else:
        assert torch.equal(torch.tensor(True).expand_as(expected) if visible is None else visible.expand_as(expected),
                           expected)  # fmt: skip


def test_a_predicate_off_by_one_is_seen():
    for broken, right in ((Mask(window=2), Mask(window=3)), (Mask(past=3), Mask(past=4)), (Mask(causal=False), Mask())):
        queries = 3
        assert not torch.equal(broken.dense(queries, S, CPU).expand(B, 1, queries, S), predicate(right, queries))


@pytest.mark.parametrize(("first", "length", "turn"), [(3, 4, 0), (3, 4, 1), (3, 4, 3), (0, 7, 2), (5, 2, 1)])
@pytest.mark.parametrize(("window", "real"), [(None, None), (3, None), (4, REAL)])
def test_over_a_span_the_columns_are_those_of_its_slots(first, length, turn, window, real):
    mask = Mask(past=6, window=window, real=real)
    whole = predicate(mask, 1)  # (B, 1, 1, S)
    held = list(range(first, first + length))
    expected = whole[..., held[length - turn :] + held[: length - turn]]
    seen = mask.over(Span(first, length, turn))
    assert torch.equal(seen.dense(1, length, CPU).expand_as(expected), expected)
    if not expected.all():
        other = mask.over(Span(first, length, (turn + 1) % length)).dense(1, length, CPU).expand_as(expected)
        assert not torch.equal(other, expected)


def test_a_span_of_everything_is_none():
    assert Mask(past=3).over(Span(0, 4)).span is None and Mask().over(Span(1, 4)).span == Span(1, 4)
    assert Mask(past=3).over(Span(0, 4)).flag(1, 4) is False, "the flag of decode is kept"


def test_a_span_takes_of_what_is_kept_by_slot():
    kept = torch.arange(9).expand(2, 9)
    assert Span(3, 4).of(kept)[0].tolist() == [3, 4, 5, 6]
    assert Span(3, 4, turn=1).of(kept)[1].tolist() == [6, 3, 4, 5]


def test_a_folded_bias_is_minus_infinity_where_nothing_may_be_seen():
    bias, mask = torch.randn(1, 3, S, S), Mask(real=REAL, window=2)
    folded = mask.fold(bias, S, S, like=bias)
    seen = predicate(mask, S).expand_as(folded)
    assert torch.equal(folded[seen], bias.expand_as(folded)[seen]) and (folded[~seen] == -torch.inf).all()
    assert mask.fold(bias, S, S, like=bias) is folded and mask.within(1).fold(bias, S, S, like=bias) is not folded
    assert mask.fold(bias + 1, S, S, like=bias) is not folded
    assert Mask(causal=False).fold(bias, S, S, like=bias) is bias
    nothing, half = mask.fold(None, S, S, like=bias), mask.fold(bias, S, S, like=bias.bfloat16())
    assert (nothing[predicate(mask, S).expand_as(nothing)] == 0).all() and (nothing == -torch.inf).any()
    assert half.dtype == torch.bfloat16 and torch.equal(half, folded.bfloat16())


def test_layers_of_one_window_share_one_tensor():
    mask = Mask(real=REAL)
    assert mask.within(3).dense(S, S, CPU) is mask.within(3).dense(S, S, CPU)
    assert mask.within(3).dense(S, S, CPU) is not mask.within(4).dense(S, S, CPU)
    assert mask.within(None).dense(S, S, CPU) is mask.dense(S, S, CPU)


@pytest.mark.parametrize("change", [{"causal": False}, {"real": REAL}, {"segments": SEGMENTS}, {"past": 2}])
def test_a_changed_mask_does_not_get_what_the_first_wrote_out(change):
    mask = Mask()
    mask.dense(4, S, CPU)
    changed = replace(mask, **change)
    assert torch.equal(changed.dense(4, S, CPU).expand(B, 1, 4, S), predicate(changed, 4))
