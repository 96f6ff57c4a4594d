"""Schemes that add to the scores: linear biases (C06) against Bloom and MPT, learned buckets against T5."""

import pytest
import torch
from pydantic import ValidationError
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from builder.model.positions import Positions

EIGHT = [2.0**-i for i in range(1, 9)]
SLOPES = {
    4: [0.25, 0.0625, 0.015625, 0.00390625],
    8: EIGHT,
    6: [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125],
    12: [*EIGHT, 0.707107, 0.353553, 0.176777, 0.088388],
}


@pytest.fixture
def scheme(config, site):
    def make(name, n_heads=4, causal=True, **knobs):
        chosen = config("position", name, **knobs)
        return chosen.component(chosen, site(n_heads=n_heads, causal=causal))

    return make


def at(*positions):
    return Positions(torch.tensor([positions]))


@pytest.mark.parametrize("n_heads", SLOPES)
def test_slopes_are_those_of_the_paper(scheme, n_heads):
    slopes = scheme("alibi", n_heads).slopes(torch.arange(n_heads))
    assert torch.allclose(slopes, torch.tensor(SLOPES[n_heads]), atol=1e-6, rtol=0)
    late = torch.tensor([2.0 ** (-8 * h / n_heads) for h in range(n_heads)])  # a first slope of 1: off by one
    assert not torch.allclose(slopes, late, atol=1e-3)


@pytest.mark.parametrize("n_heads", [1, 2, 3, 4, 5, 6, 7, 8, 12, 20, 32, 71, 112])
@pytest.mark.parametrize("maximum", [8, 16])
def test_a_score_loses_what_it_does_in_transformers(scheme, n_heads, maximum):
    keys = torch.arange(9)[None]
    bias = scheme("alibi", n_heads, max_exponent=float(maximum)).bias(at(8), Positions(keys)).dense()
    assert bias.shape == (1, n_heads, 1, 9) and bias.dtype == torch.float32
    mpt = build_mpt_alibi_tensor(n_heads, 9, maximum)  # 0 at the last key
    assert torch.allclose(bias[0], mpt, atol=1e-6)
    if maximum == 8:
        bloom = build_alibi_tensor(torch.ones(1, 9), n_heads, torch.float32).view(n_heads, 1, 9)
        assert torch.allclose(bias[0], bloom - bloom[..., -1:], atol=1e-5)


def test_the_shift_between_two_distances_is_the_slope_times_their_difference(scheme):
    """C06: -slope * d between distance d and 0, also for one query over a state."""
    for queries in ((0, 1, 2, 3), (3,)):
        bias = scheme("alibi").bias(at(*queries), at(0, 1, 2, 3)).dense()[0]
        for h, slope in enumerate(SLOPES[4]):
            for t, query in enumerate(queries):
                assert bias[h, t, query] == 0
                for key in range(query):
                    assert bias[h, t, key].item() == pytest.approx(-slope * (query - key), abs=1e-7)
    assert bias.abs().max() > 0.1, "in decode the bias must not vanish"


def test_the_multiplier_scales_all_slopes(scheme):
    plain, scaled = (scheme("alibi", multiplier=m).slopes(torch.arange(4)) for m in (1.0, 0.25))
    assert torch.allclose(scaled, plain / 4)


def test_a_cast_rounds_no_slope(scheme):
    alibi = scheme("alibi", 12)
    right = alibi.bias(at(4095), at(*range(0, 4096, 5))).dense()
    low = alibi.bfloat16().bias(at(4095), at(*range(0, 4096, 5))).dense()
    assert torch.equal(low, right) and not alibi.state_dict() and not list(alibi.buffers())
    assert (right.bfloat16().float() - right).abs().max() > 1


def test_both_sides_lose_alike_without_a_mask(scheme):
    bias = scheme("alibi", causal=False).bias(at(0, 1, 2), at(0, 1, 2)).dense()
    assert torch.equal(bias, bias.transpose(-1, -2)) and bias[0, 0, 0, 2] == -0.5


@pytest.mark.parametrize("name", ["alibi", "t5"])
def test_rows_have_biases_of_their_own_positions(scheme, wide, name):
    made = wide(scheme(name))
    ids = torch.tensor([[0, 0, 0, 1, 2, 3], [0, 1, 2, 0, 1, 9]])  # left padding, two documents
    bias = made.bias(Positions(ids), Positions(ids)).dense()
    for row in range(2):
        for t in range(6):
            for s in range(6):
                one = made.bias(at(ids[row, t]), at(ids[row, s])).dense()[0, :, 0, 0]
                assert torch.equal(bias[row, :, t, s], one)


@pytest.mark.parametrize("name", ["alibi", "t5"])
def test_a_bias_is_written_out_once_a_pass(scheme, wide, name):
    made, positions = wide(scheme(name)), at(0, 1, 2)
    first = made.bias(positions, positions).dense()
    assert made.bias(positions, positions).dense() is first
    assert wide(scheme(name), seed=1).bias(positions, positions).dense() is not first


@pytest.mark.parametrize("name", ["alibi", "t5"])
def test_a_scheme_without_a_number_of_heads_is_refused(scheme, name):
    with pytest.raises(ValueError, match="n_heads"):
        scheme(name, n_heads=None)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (8, 20), (64, 256), (4, 5), (14, 100)])
def test_buckets_are_those_of_transformers(scheme, causal, n_buckets, max_distance):
    offsets = torch.arange(-600, 601)
    expected = T5Attention._relative_position_bucket(offsets, not causal, n_buckets, max_distance)
    got = scheme("t5", causal=causal, n_buckets=n_buckets, max_distance=max_distance).bucket(offsets)
    assert torch.equal(got, expected)
    other = T5Attention._relative_position_bucket(offsets, causal, n_buckets, max_distance)
    assert not torch.equal(got, other)


def test_t5_looks_its_table_up(scheme, wide):
    t5 = wide(scheme("t5", n_buckets=8, max_distance=16))
    assert t5.weight.shape == (8, 4) and t5.roles == {"weight": "bias"}
    bias = t5.bias(at(20, 21), at(0, 19, 20, 21)).dense()
    for t, query in enumerate((20, 21)):
        for s, key in enumerate((0, 19, 20, 21)):
            row = T5Attention._relative_position_bucket(torch.tensor(key - query), False, 8, 16)
            assert torch.equal(bias[0, :, t, s], t5.weight[row])


@pytest.mark.parametrize("causal", [True, False])
def test_t5_is_trained_in_every_bucket_it_reads(scheme, wide, causal):
    t5 = wide(scheme("t5", causal=causal, n_buckets=8, max_distance=16))
    positions = Positions(torch.arange(40)[None])
    t5.bias(positions, positions).dense().sum().backward()
    read = (t5.weight.grad != 0).all(dim=1)
    assert read.tolist() == [causal or row != 4 for row in range(8)], "row 4 is for distance 0 behind the query"


@pytest.mark.parametrize("knobs", [{"n_buckets": 1}, {"max_distance": 16}, {"n_buckets": 300}])
def test_buckets_that_do_not_fit_are_refused(scheme, knobs):
    with pytest.raises(ValidationError):
        scheme("t5", **knobs)
