"""The layer of heads: transformers' layer with the same weights, and the parts of it that its knobs move."""

from importlib import import_module

import pytest
import torch
from torch import nn

from builder.components.ssm.mamba2 import GatedNorm
from builder.finding import Status

D, E, P, N, T = 32, 64, 8, 5, 19


def theirs(groups, limit):
    """Their mixer, every parameter from N(0, 0.3^2)."""
    home = import_module("transformers.models.mamba2.modeling_mamba2")
    config = home.Mamba2Config(
        vocab_size=37, hidden_size=D, num_hidden_layers=2, expand=E // D, num_heads=E // P, head_dim=P, state_size=N,
        n_groups=groups, conv_kernel=4, chunk_size=8, time_step_limit=limit,
    )  # fmt: skip
    mixer: nn.Module = home.Mamba2Mixer(config, layer_idx=0).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
    return mixer


def weights(mixer):
    """Their weights under our names: their input map gives the gate, x, B, C and dt, and is ours in another order."""
    shared = mixer.n_groups * N
    gate, x, b, c, dt = mixer.in_proj.weight.split((E, E, shared, shared, E // P))
    return {
        "input.weight": torch.cat((x, gate)), "b.weight": b, "c.weight": c, "dt.weight": dt, "dt.bias": mixer.dt_bias,
        "conv.weight": mixer.conv1d.weight[:, 0], "conv.bias": mixer.conv1d.bias, "a_log": mixer.A_log, "d": mixer.D,
        "norm.weight": mixer.norm.weight, "output.weight": mixer.out_proj.weight,
    }  # fmt: skip


@pytest.fixture
def both(layer, context):
    """both(groups, limit, **knobs): (ours, theirs) on one input of T tokens."""

    def run(groups=1, limit=(0.0, float("inf")), **knobs):
        mixer = theirs(groups, limit)
        ours = layer("mamba2", **{"d_head": P, "d_state": N, "n_groups": groups} | knobs)
        ours.load_state_dict(weights(mixer), strict=True)
        x = torch.randn(2, T, D, generator=torch.Generator().manual_seed(2))
        with torch.no_grad():
            return ours(x, context(T)), mixer(x)

    return run


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("chunk", [4, 16, 64])
def test_what_it_gives_equals_theirs(both, groups, chunk):
    ours, right = both(groups, chunk=chunk)
    assert (ours - right).abs().max() <= 5e-6 * max(1.0, right.abs().max().item())


@pytest.mark.parametrize(("theirs", "limit"), [((0.5, 0.7), [0.5, 0.7]), ((0.5, float("inf")), [0.5, None])])
def test_limited_steps_are_theirs(both, theirs, limit):
    ours, right = both(limit=theirs, dt_limit=limit)
    assert (ours - right).abs().max() <= 5e-6 * max(1.0, right.abs().max().item())


@pytest.mark.parametrize("change", [{"norm_before_gate": True}, {"norm_eps": 0.5}, {"dt_limit": [0.5, None]}], ids=str)
def test_a_changed_knob_is_seen(both, change):
    ours, right = both(**change)
    assert (ours - right).abs().max() > 1e-2


@pytest.mark.parametrize("change", [{"norm": False}, {"d_conv": 3}, {"conv_bias": False}, {"bias": True}], ids=str)
def test_a_knob_that_changes_what_is_held_is_seen(both, change):
    with pytest.raises(RuntimeError, match="state_dict"):
        both(**change)


def test_without_a_norm_the_gate_multiplies(layer, context):
    made = layer("mamba2", norm=False)
    x = torch.randn(1, 5, D)
    with torch.no_grad():
        made.output.weight.normal_()
        for part in (made.input, made.b, made.c, made.dt):
            part.weight.normal_()
        made.input.weight[E:].zero_()  # the gate's half: silu(0) = 0
        assert not made(x, context(5)).any()


@pytest.mark.parametrize("before", [False, True])
def test_the_norm_by_hand(before):
    norm, y, gate = GatedNorm(6, 2, 1e-5, before), torch.randn(1, 1, 6), torch.randn(1, 1, 6)
    passed = gate * torch.sigmoid(gate)
    entering = y if before else y * passed
    blocks = [part / (part.square().mean(-1, keepdim=True) + 1e-5).sqrt() for part in entering.split(3, dim=-1)]
    right = torch.cat(blocks, dim=-1) * (passed if before else 1.0)
    assert (norm(y, gate) - right).abs().max() <= 1e-6


def test_first_values_are_those_of_the_paper(layer):
    made = layer("mamba2", d_model=512)
    rates, steps = made.a_log.exp(), torch.nn.functional.softplus(made.dt.bias)
    assert 1 <= rates.min() < 4 < 12 < rates.max() <= 16
    assert 0.999e-3 <= steps.min() < 3e-3 < 0.03 < steps.max() <= 0.1001
    assert torch.equal(made.d, torch.ones_like(made.d))


def test_heads_that_do_not_fit_are_told_with_what_would(layer, site):
    kind = type(layer("mamba2"))
    for knobs, key, fix in (({"d_head": 24}, "d_head", "d_head=16"), ({"n_groups": 3}, "n_groups", "n_groups=2")):
        (finding,) = kind.check(kind.Config(**{"d_head": 16} | knobs), site())
        assert (finding.status, finding.path, finding.fix) == (Status.FAIL, key, fix)
