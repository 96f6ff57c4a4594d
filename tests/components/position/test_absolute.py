"""Schemes that write the position into the embedded token: sines and cosines by the formula, and a learned table."""

import math

import pytest
import torch

from builder.model.positions import Positions


@pytest.fixture
def scheme(config, site):
    def make(name, **knobs):
        chosen = config("position", name, **knobs)
        return chosen.component(chosen, site(n_heads=4))

    return make


@pytest.mark.parametrize("theta", [50.0, 10000.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_sines_and_cosines_follow_the_formula(scheme, theta, dtype):
    x, positions = torch.randn(2, 4, 32, dtype=dtype), [[0, 1, 2, 3], [7, 8, 60, 400]]
    out = scheme("sinusoidal", theta=theta).embed(x, Positions(torch.tensor(positions)))
    for b in range(2):
        for t, p in enumerate(positions[b]):
            for i in range(16):
                angle = p * theta ** (-2 * i / 32)
                wave = out[b, t, 2 * i : 2 * i + 2] - x[b, t, 2 * i : 2 * i + 2]
                assert math.isclose(wave[0].item(), math.sin(angle), abs_tol=1e-4)
                assert math.isclose(wave[1].item(), math.cos(angle), abs_tol=1e-4)
    assert out.dtype == dtype


def test_sines_may_stand_before_all_cosines_as_in_marian(scheme):
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    right = MarianSinusoidalPositionalEmbedding(60, 32).create_weight()
    positions = Positions(torch.tensor([[0, 1, 7, 59]]))
    out = scheme("sinusoidal", pairing="half").embed(torch.zeros(1, 4, 32), positions)
    assert (out[0] - right[positions.ids[0]]).abs().max() <= 1e-5
    assert (scheme("sinusoidal").embed(torch.zeros(1, 4, 32), positions)[0] - right[positions.ids[0]]).abs().max() > 0.1


def test_sines_in_bfloat16_are_rounded_only_once(scheme):
    nothing, positions = torch.zeros(1, 4096, 64).bfloat16(), Positions(torch.arange(4096)[None])
    out = scheme("sinusoidal").bfloat16().embed(nothing, positions)
    right = torch.tensor([[math.sin(p * 10000 ** (-2 * i / 64)) for i in range(32)] for p in range(4096)])
    assert (out[0, :, ::2].float() - right).abs().max() <= 5e-3
    low = torch.arange(4096).bfloat16()[:, None] * (10000 ** -(torch.arange(0, 64, 2) / 64)).bfloat16()
    assert (low.sin().float() - right).abs().max() > 1


def test_a_learned_table_adds_the_row_of_each_position(scheme, wide):
    learned = wide(scheme("learned"))
    x, positions = torch.randn(2, 3, 32, dtype=torch.float64), [[0, 1, 2], [15, 3, 3]]
    out = learned.embed(x, Positions(torch.tensor(positions)))
    for b in range(2):
        for t, p in enumerate(positions[b]):
            assert torch.equal(out[b, t], x[b, t] + learned.weight[p])
    assert not torch.equal(out, learned.embed(x, Positions(torch.tensor(positions).flip(0))))


@pytest.mark.parametrize(("length", "rows"), [(None, 16), (20, 20)])
def test_the_table_is_as_long_as_training_unless_told(scheme, length, rows):
    learned = scheme("learned", length=length)
    assert learned.weight.shape == (rows, 32) and learned.limit == rows


def test_an_offset_skips_rows(scheme, wide):
    learned = wide(scheme("learned", offset=2))
    assert learned.weight.shape == (18, 32) and learned.limit == 16
    x, positions = torch.randn(1, 3, 32, dtype=torch.float64), [0, 5, 15]
    out = learned.embed(x, Positions(torch.tensor([positions])))
    for t, p in enumerate(positions):
        assert torch.equal(out[0, t], x[0, t] + learned.weight[p + 2])
        assert not torch.equal(out[0, t], x[0, t] + learned.weight[p])


def test_opt_reads_the_same_rows(scheme, wide):
    from transformers.models.opt.modeling_opt import OPTLearnedPositionalEmbedding

    learned = wide(scheme("learned", offset=2))
    theirs = OPTLearnedPositionalEmbedding(16, 32).double()
    theirs.load_state_dict(learned.state_dict())
    real = torch.ones(1, 16, dtype=torch.long)
    out = learned.embed(torch.zeros(1, 16, 32).double(), Positions(torch.arange(16)[None]))
    assert torch.equal(out, theirs(real))


@pytest.mark.parametrize("name", ["none", "rope", "alibi", "t5"])
def test_schemes_that_do_not_embed_leave_the_tokens_alone(scheme, name):
    x = torch.randn(1, 3, 32)
    assert scheme(name).embed(x, Positions(torch.arange(3)[None])) is x


@pytest.mark.parametrize("name", ["none", "learned", "sinusoidal"])
def test_schemes_that_do_not_rotate_leave_queries_alone(scheme, name):
    q, positions = torch.randn(1, 3, 2, 16), Positions(torch.arange(3)[None])
    assert scheme(name).rotate(q, positions) is q and scheme(name).bias(positions, positions) is None
