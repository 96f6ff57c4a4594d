"""Rotary positions: the identity of chapter 3.6, transformers' rotation, partial (C12), low precision (C09)."""

import math

import pytest
import torch
from pydantic import ValidationError
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from builder.model.positions import Positions


@pytest.fixture
def rope(config, site):
    def make(**knobs):
        scheme = config("position", "rope", **knobs)
        return scheme.component(scheme, site())

    return make


def at(*positions):
    return Positions(torch.tensor([positions]))


def angles(width, positions, theta=10000.0):
    """p theta^(-2i / r) in float64, by the formula."""
    return torch.tensor([[p * theta ** (-2 * i / width) for i in range(width // 2)] for p in positions]).double()


def turned_by_hand(x, width, positions, theta=10000.0):
    """R(p) applied pair by pair, (i, i + r/2), in a Python loop."""
    out = x.clone()
    for t, p in enumerate(positions):
        for i in range(width // 2):
            angle = p * theta ** (-2 * i / width)
            a, b = x[:, t, :, i], x[:, t, :, i + width // 2]
            out[:, t, :, i] = a * math.cos(angle) - b * math.sin(angle)
            out[:, t, :, i + width // 2] = b * math.cos(angle) + a * math.sin(angle)
    return out


@pytest.mark.parametrize("fraction", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("theta", [100.0, 10000.0])
def test_equals_the_rotation_by_hand(rope, fraction, theta):
    x, positions = torch.randn(2, 5, 3, 16, dtype=torch.float64), (0, 1, 2, 7, 60)
    out = rope(fraction=fraction, theta=theta).rotate(x, at(*positions))
    assert (out - turned_by_hand(x, int(16 * fraction), positions, theta)).abs().max() < 2e-5
    assert (out - turned_by_hand(x, int(16 * fraction), (1, 2, 3, 8, 61), theta)).abs().max() > 1e-2


def test_a_product_depends_on_the_distance_alone(rope):
    q, k = torch.randn(2, 1, 1, 3, 16, dtype=torch.float64)
    scheme = rope()

    def product(p, s):
        return (scheme.rotate(q, at(p)) * scheme.rotate(k, at(s))).sum(-1)

    for p, s in ((5, 2), (3, 3), (0, 9)):
        for shift in (1, 10, 100):
            assert torch.allclose(product(p, s), product(p + shift, s + shift), atol=1e-4)
    assert (product(5, 2) - product(6, 2)).abs().max() > 1e-2


def test_a_rotation_keeps_lengths(rope):
    x = torch.randn(2, 5, 3, 16, dtype=torch.float64)
    assert torch.allclose(rope().rotate(x, at(0, 1, 2, 300, 4000)).norm(dim=-1), x.norm(dim=-1), atol=1e-6)


def test_equals_transformers(rope):
    q, k = torch.randn(2, 12, 4, 16), torch.randn(2, 12, 2, 16)
    positions = torch.stack((torch.arange(12), torch.arange(3, 15)))
    parameters = {"rope_type": "default", "rope_theta": 500.0}
    theirs = LlamaConfig(hidden_size=64, num_attention_heads=4, head_dim=16, rope_parameters=parameters)
    cos, sin = LlamaRotaryEmbedding(theirs)(q, positions)
    expected = apply_rotary_pos_emb(q.transpose(1, 2), k.transpose(1, 2), cos, sin)
    scheme = rope(theta=500.0)
    for x, right in zip((q, k), expected, strict=True):
        assert (scheme.rotate(x, Positions(positions)).transpose(1, 2) - right).abs().max() <= 1e-5
        interleaved = torch.cat((x[..., ::2], x[..., 1::2]), dim=-1)
        assert (scheme.rotate(interleaved, Positions(positions)).transpose(1, 2) - right).abs().max() > 1e-2


def test_part_of_a_head_has_frequencies_of_the_rotary_width(rope):
    scheme, positions = rope(fraction=0.5), (0, 1, 5, 40)
    x = torch.randn(1, 4, 2, 16, dtype=torch.float64)
    out = scheme.rotate(x, at(*positions))
    assert torch.equal(out[..., 8:], x[..., 8:]), "the rest of the head carries no position"
    one = torch.zeros(1, 1, 1, 16, dtype=torch.float64)
    one[..., :4] = 1  # the first of each pair (i, i + 4): comes out as (cos, sin)
    turned = scheme.rotate(one, at(1))[0, 0, 0]
    assert torch.allclose(torch.atan2(turned[4:8], turned[:4]), torch.tensor([1, 0.1, 0.01, 0.001]).double(), atol=1e-6)
    wrong = turned_by_hand(x, 16, positions)
    assert (out - wrong).abs().max() > 1e-2


def test_the_whole_head_is_fraction_one(rope):
    x = torch.randn(1, 4, 2, 16)
    assert torch.equal(rope(fraction=1.0).rotate(x, at(0, 1, 2, 3)), rope().rotate(x, at(0, 1, 2, 3)))


def swapped(x, width):
    """Interleaved pairs, laid out as half pairs."""
    return torch.cat((x[..., 0:width:2], x[..., 1:width:2], x[..., width:]), dim=-1)


@pytest.mark.parametrize("fraction", [0.25, 0.5, 1.0])
def test_interleaved_pairs_turn_in_their_places(rope, fraction):
    x, positions, width = torch.randn(2, 5, 3, 16, dtype=torch.float64), (0, 1, 2, 7, 60), int(16 * fraction)
    out = rope(fraction=fraction, pairing="interleaved").rotate(x, at(*positions))
    right = x.clone()
    for t, p in enumerate(positions):
        for i in range(width // 2):
            angle = p * 10000.0 ** (-2 * i / width)
            a, b = x[:, t, :, 2 * i], x[:, t, :, 2 * i + 1]
            right[:, t, :, 2 * i] = a * math.cos(angle) - b * math.sin(angle)
            right[:, t, :, 2 * i + 1] = b * math.cos(angle) + a * math.sin(angle)
    assert (out - right).abs().max() < 2e-5
    half = rope(fraction=fraction).rotate(swapped(x, width), at(*positions))
    assert (swapped(out, width) - half).abs().max() < 1e-12
    assert width == 4 or (out - rope(fraction=fraction).rotate(x, at(*positions))).abs().max() > 1e-2


def test_interleaved_equals_transformers_gptj(rope):
    from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as theirs
    from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions

    x = torch.randn(2, 12, 4, 16)
    sin, cos = create_sinusoidal_positions(32, 16)[:12].chunk(2, dim=-1)
    expected = theirs(x, sin[None], cos[None])
    positions = Positions(torch.arange(12)[None])
    assert (rope(pairing="interleaved").rotate(x, positions) - expected).abs().max() <= 1e-5
    assert (rope().rotate(x, positions) - expected).abs().max() > 1e-2


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_the_relative_shift_identity(rope, pairing):
    """Chapter 3.6: (R(p) q) . (R(s) k) = q . R(s - p) k."""
    q, k = torch.randn(2, 1, 1, 3, 16, dtype=torch.float64)
    scheme = rope(pairing=pairing)
    for p, s in ((2, 5), (0, 9), (3, 40)):
        left = (scheme.rotate(q, at(p)) * scheme.rotate(k, at(s))).sum(-1)
        assert torch.allclose(left, (q * scheme.rotate(k, at(s - p))).sum(-1), atol=1e-5)
        assert not torch.allclose(left, (q * scheme.rotate(k, at(s - p + 1))).sum(-1), atol=1e-2)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_its_gradient_is_the_rotation_back(rope, pairing, fraction):
    x = torch.randn(1, 5, 2, 16, dtype=torch.float64, requires_grad=True)
    scheme, positions = rope(pairing=pairing, fraction=fraction), at(0, 1, 2, 7, 60)
    back = torch.autograd.grad(scheme.rotate(x, positions), x, scheme.rotate(x, positions).detach())[0]
    assert torch.allclose(back, x, atol=1e-6)


def test_two_schemes_of_one_pass_keep_their_own_angles(rope):
    x, positions = torch.randn(1, 3, 2, 16), at(0, 1, 9)
    outs = [rope(**k).rotate(x, positions) for k in ({}, {"theta": 50.0}, {"pairing": "interleaved"})]
    scaled = {"name": "linear", "factor": 2.0}
    outs.append(rope(scaling=scaled).rotate(x, positions))
    assert all((a - b).abs().max() > 1e-2 for i, a in enumerate(outs) for b in outs[:i])
    assert torch.equal(rope(theta=50.0).rotate(x, at(0, 1, 9)), outs[1])


def seen_cosines(scheme, dtype=torch.float32):
    """The cosines of 4096 positions as the scheme applies them: pairs (1, 0) come out as (cos, sin)."""
    x = torch.zeros(1, 4096, 1, 64, dtype=dtype)
    x[..., :32] = 1
    return scheme.rotate(x, Positions(torch.arange(4096)[None]))[0, :, 0, :32].double()


def test_angles_survive_low_precision(rope):
    right = angles(64, range(4096)).cos()
    assert (seen_cosines(rope()) - right).abs().max() <= 5e-4
    assert (seen_cosines(rope().to(torch.bfloat16), torch.bfloat16) - right).abs().max() <= 5e-3
    assert (seen_cosines(rope().bfloat16().half().float()) - right).abs().max() <= 5e-4
    with torch.autocast("cpu", torch.bfloat16):
        assert (seen_cosines(rope(), torch.bfloat16) - right).abs().max() <= 5e-3
    previous = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.bfloat16)  # as under "true bf16" precision
        assert (seen_cosines(rope(), torch.bfloat16) - right).abs().max() <= 5e-3
    finally:
        torch.set_default_dtype(previous)


def test_angles_in_bfloat16_would_be_seen():
    right = angles(64, range(4096)).cos()
    low = torch.arange(4096).bfloat16()[:, None] * (10000.0 ** -(torch.arange(0, 64, 2) / 64)).bfloat16()
    assert (low.cos().double() - right).abs().max() > 1


def test_nothing_of_it_can_be_cast_or_saved(rope):
    assert not list(rope().parameters()) and not list(rope().buffers()) and not rope().state_dict()


@pytest.mark.parametrize(
    ("d_head", "fraction", "fits"),
    [(16, 1.0, True), (16, 0.5, True), (6, 1.0, True), (5, 1.0, False), (12, 0.25, False), (4, 0.25, False)],
)
def test_an_odd_rotary_width_is_a_misfit(config, d_head, fraction, fits):
    scheme = config("position", "rope", fraction=fraction)
    misfit = scheme.component.misfit(scheme, d_head)
    assert (misfit is None) == fits
    assert fits or (str(d_head) in misfit and "even" in misfit)


def test_a_base_of_one_is_refused(config):
    with pytest.raises(ValidationError):
        config("position", "rope", theta=1.0)


@pytest.mark.parametrize("fraction", [0.0, -0.5, 1.5])
def test_a_fraction_out_of_range_is_refused(config, fraction):
    with pytest.raises(ValidationError):
        config("position", "rope", fraction=fraction)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_gradients_are_those_of_finite_differences(rope, pairing, fraction):
    """In float64, to the second order; where positions stand apart in each row, and with what isn't turned."""
    scheme, places = rope(pairing=pairing, fraction=fraction), Positions(torch.tensor([[0, 3, 40], [5, 6, 7]]))
    x = torch.randn(2, 3, 1, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: scheme.rotate(x, places), x)
    assert torch.autograd.gradgradcheck(lambda x: scheme.rotate(x, places), x)
    dy = torch.randn(2, 3, 1, 8, dtype=torch.float64)
    back = torch.autograd.grad(scheme.rotate(x, places), x, dy)[0]
    assert (back - scheme.rotate(dy, places)).abs().max() > 1e-2, "they turn the other way round"


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_what_a_compiler_sees_turns_the_same(rope, pairing, monkeypatch):
    scheme, x = rope(pairing=pairing, fraction=0.5), torch.randn(2, 3, 2, 16, dtype=torch.float64)
    plain = scheme.rotate(x, at(0, 5, 40))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    torch.testing.assert_close(scheme.rotate(x, at(0, 5, 40)), plain, rtol=1e-12, atol=1e-12)
    assert (scheme.rotate(x, at(0, 6, 40)) - plain).abs().max() > 1e-3
