"""The selective layer: the rule's own numbers, and transformers' layers with the same weights."""

import math
from importlib import import_module

import pytest
import torch
from torch import nn

from builder.components.ssm.mamba import Mamba
from builder.model.selective_scan import selective_scan

D, E, N, R, T = 32, 64, 5, 3, 19


def test_the_rule_is_that_of_the_paper():
    """A = -1, dt = ln 2, B = C = 1, D = 0: each step halves the state and takes in ln 2 x."""
    x = torch.tensor([1.0, 0, 0, 1], dtype=torch.float64).view(1, 4, 1)
    one = torch.ones(1, 4, 1, dtype=torch.float64)
    y, _ = selective_scan(x, one * math.log(2), -one[0, :1], one, one)
    right = torch.tensor([0.693147, 0.346574, 0.173287, 0.779791], dtype=torch.float64)
    assert (y.flatten() - right).abs().max() <= 1e-6
    exact_hold = torch.tensor([0.5, 0.25, 0.125, 0.5625], dtype=torch.float64)
    assert (y.flatten() - exact_hold).abs().max() > 0.1


# module: (class, the names of its norms for dt, B and C, our knobs)
MODELS = {
    "mamba": ("Mamba", (), {}),
    "jamba": ("Jamba", ("dt_layernorm", "b_layernorm", "c_layernorm"), {"norm": {"name": "rmsnorm"}}),
    "falcon_mamba": ("FalconMamba", None, {"norm": {"name": "rmsnorm"}}),
}


def theirs(name, **changes):
    """Their mixer, every parameter from N(0, 0.3^2)."""
    prefix, norms, _ = MODELS[name]
    home = import_module(f"transformers.models.{name}.modeling_{name}")
    mamba = {"state_size": N, "conv_kernel": 4, "expand": E // D, "time_step_rank": R, "intermediate_size": E}
    jamba = {"mamba_d_state": N, "mamba_d_conv": 4, "mamba_expand": E // D, "mamba_dt_rank": R}
    jamba |= {"use_mamba_kernels": False, "num_attention_heads": 4, "num_key_value_heads": 2}
    facts = jamba if name == "jamba" else mamba
    config = getattr(home, f"{prefix}Config")(vocab_size=37, hidden_size=D, num_hidden_layers=2, **facts | changes)
    kind = "JambaMambaMixer" if name == "jamba" else f"{prefix}Mixer"
    with torch.device("meta"):  # their own first values are not asked for
        mixer: nn.Module = getattr(home, kind)(config, layer_idx=0).eval()
    mixer = mixer.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
    return mixer


def weights(mixer, norms):
    """Their weights under our names."""
    rank, size = mixer.dt_proj.in_features, mixer.A_log.shape[1]
    dt, b, c = mixer.x_proj.weight.split((rank, size, size))
    state = {
        "input.weight": mixer.in_proj.weight, "conv.weight": mixer.conv1d.weight[:, 0], "conv.bias": mixer.conv1d.bias,
        "dt_a.weight": dt, "b.weight": b, "c.weight": c, "dt_b.weight": mixer.dt_proj.weight,
        "dt_b.bias": mixer.dt_proj.bias, "a_log": mixer.A_log, "d": mixer.D, "output.weight": mixer.out_proj.weight,
    }  # fmt: skip
    named = dict(zip(("dt_norm", "b_norm", "c_norm"), norms or (), strict=False))
    state |= {f"{ours}.weight": mixer.get_submodule(theirs).weight for ours, theirs in named.items()}
    if norms is None:  # without factors
        state |= {"dt_norm.weight": torch.ones(R), "b_norm.weight": torch.ones(N), "c_norm.weight": torch.ones(N)}
    return state


@pytest.fixture
def both(layer, context):
    """both(model, **changes): (ours, theirs) on one input of T tokens; `changes` are to our knobs."""

    def run(name, **changes):
        mixer, (_, norms, knobs) = theirs(name), MODELS[name]
        ours = layer("mamba", **{"d_inner": E, "d_state": N, "dt_rank": R} | knobs | changes)
        ours.load_state_dict(weights(mixer, norms), strict=True)
        x = torch.randn(2, T, D, generator=torch.Generator().manual_seed(2))
        with torch.no_grad():
            return ours(x, context(T)), mixer(x)

    return run


@pytest.mark.parametrize("name", MODELS)
def test_what_it_gives_equals_theirs(both, name):
    ours, right = both(name)
    assert (ours - right).abs().max() <= 5e-6 * max(1.0, right.abs().max().item())


@pytest.mark.parametrize(
    ("name", "change"),
    [("jamba", {"norm": {"name": "rmsnorm", "eps": 0.5}}), ("falcon_mamba", {"norm": {"name": "rmsnorm", "eps": 0.5}})],
    ids=str,
)
def test_a_changed_knob_is_seen(both, name, change):
    ours, right = both(name, **change)
    assert (ours - right).abs().max() > 1e-2


@pytest.mark.parametrize(
    "change",
    [{"norm": {"name": "rmsnorm"}}, {"d_conv": 3}, {"conv_bias": False}, {"bias": True}, {"d_state": 4}],
    ids=str,
)
def test_a_knob_that_changes_what_is_held_is_seen(both, change):
    with pytest.raises(RuntimeError, match="state_dict"):
        both("mamba", **change)


def test_widths_follow_the_model(layer):
    made = layer("mamba", d_model=40)
    assert isinstance(made, Mamba)
    assert (made.channels, made.size, made.dt_a.out_features, made.conv.width) == (80, 16, 3, 4)
    assert sum(p.numel() for p in made.parameters()) == 80 * (2 * 40 + 4 + 1 + 3 + 2 * 16 + 3 + 1 + 16 + 1 + 40)
