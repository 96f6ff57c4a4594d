"""The gated delta rule: transformers' Qwen3-Next and a loop as oracles, first values, what is refused."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from builder import build, compose, load
from builder.components.ssm._chunks import CHUNK
from builder.components.ssm._delta_rule import delta_rule

D, H, G, N, V = 32, 4, 2, 6, 5
LENGTHS = [1, 2, 3, 16, 17, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 9]


def inputs(length, heads=3, rate=0.5, seed=0):
    """q, k of length 1, v, g < 0 and beta in (0, 1) of two rows, and a state, in float64."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    q, k = (nn.functional.normalize(draw(2, length, heads, N), dim=-1) for _ in range(2))
    log, beta = -rate * draw(2, length, heads).exp(), draw(2, length, heads).sigmoid()
    return [q, k, draw(2, length, heads, V), log, beta, draw(2, heads, N, V)]


def loop(q, k, v, log, beta, state):
    """The recurrence as the paper writes it, with its N x N matrix, token by token."""
    out, eye = [], torch.eye(k.shape[-1], dtype=k.dtype)
    for t in range(q.shape[1]):
        key, gain = k[:, t], beta[:, t, :, None, None]  # (B, H, N), (B, H, 1, 1)
        erase = eye - gain * key[..., :, None] * key[..., None, :]
        state = log[:, t, :, None, None].exp() * (erase @ state) + gain * key[..., :, None] * v[:, t, :, None, :]
        out.append((q[:, t, :, None, :] @ state)[:, :, 0])
    return torch.stack(out, 1), state


def near(ours, right, tolerance=1e-10):
    assert (ours - right).abs().max() <= tolerance * max(1.0, right.abs().max().item())


@pytest.mark.parametrize("length", LENGTHS)
def test_chunks_are_the_recurrence(length):
    given = inputs(length)
    for ours, right in zip(delta_rule(*given), loop(*given), strict=True):
        near(ours, right)
    fresh = delta_rule(*given[:5], state=None)
    near(fresh[0], loop(*given[:5], state=torch.zeros_like(given[5]))[0])
    assert (fresh[0] - delta_rule(*given)[0]).abs().max() > 1e-3  # the control: the state is felt


@pytest.mark.parametrize("rate", [1e-6, 30.0])
def test_decays_of_any_size_stay_finite(rate):
    given = [x.requires_grad_() for x in inputs(CHUNK + 5, rate=rate)]
    out = delta_rule(*given)[0]
    near(out, loop(*given)[0])
    for grad in torch.autograd.grad(out.sum(), given):
        assert grad.isfinite().all()


@pytest.mark.parametrize("length", [1, 5, CHUNK + 3])
def test_gradients_are_those_of_the_loop(length):
    given = [x.requires_grad_() for x in inputs(length)]
    weight = torch.randn(2, length, 3, V, dtype=torch.float64)
    (ours, last), (right, theirs) = delta_rule(*given), loop(*given)
    found = torch.autograd.grad((ours * weight).sum() + last.square().sum(), given)
    for grad, expected in zip(
        found, torch.autograd.grad((right * weight).sum() + theirs.square().sum(), given), strict=True
    ):
        near(grad, expected, 1e-9)


@pytest.mark.parametrize("at", [1, 40, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK])
def test_a_document_starts_from_nothing(at):
    """The second starts anywhere in a chunk; a third, one token later."""
    given, length = inputs(2 * CHUNK + 9), 2 * CHUNK + 9
    starts = torch.zeros(2, length, dtype=torch.bool)
    starts[:, [0, at, at + 1]] = True
    ours, last = delta_rule(*given[:5], state=None, starts=starts)
    for first, end in ((0, at), (at, at + 1), (at + 1, length)):
        right, theirs = loop(*[x[:, first:end] for x in given[:5]], state=torch.zeros_like(given[5]))
        near(ours[:, first:end], right)
    near(last, theirs)


@pytest.mark.parametrize("length", [1, 16, 33, 64])
def test_it_is_transformers_rule(length):
    from transformers.models.qwen3_next import modeling_qwen3_next as theirs

    q, k, v, log, beta, state = [x.float() for x in inputs(length)]
    given = {"g": log, "beta": beta, "initial_state": state, "output_final_state": True}
    ours = delta_rule(q * N**-0.5, k, v, log, beta, state)
    for rule in (theirs.torch_recurrent_gated_delta_rule, theirs.torch_chunk_gated_delta_rule):
        for found, right in zip(ours, rule(q, k, v, **given), strict=True):
            near(found, right, 1e-5)


def qwens():
    """Qwen3-Next's mixer with 2 key heads and 4 value heads, every parameter from N(0, 0.3^2)."""
    from transformers import Qwen3NextConfig
    from transformers.models.qwen3_next import modeling_qwen3_next as theirs

    made = Qwen3NextConfig(
        hidden_size=D, linear_num_value_heads=H, linear_num_key_heads=G, linear_key_head_dim=N,
        linear_value_head_dim=V, linear_conv_kernel_dim=4, num_hidden_layers=1, rms_norm_eps=1e-6, vocab_size=11,
        layer_types=["linear_attention"],
    )  # fmt: skip
    mixer = theirs.Qwen3NextGatedDeltaNet(made, layer_idx=0).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
    return mixer


def ours_of(theirs):
    """Their weights under our names: they interleave q, k, v and the gate, and beta and dt, by key head."""
    mixed = theirs.in_proj_qkvz.weight.unflatten(0, (G, -1)).split((N, N, H // G * V, H // G * V), dim=1)
    q, k, v, gate = (part.flatten(0, 1) for part in mixed)
    beta, dt = (part.flatten(0, 1) for part in theirs.in_proj_ba.weight.unflatten(0, (G, -1)).chunk(2, dim=1))
    return {
        "q.weight": q, "k.weight": k, "v.weight": v, "gate.weight": gate, "beta.weight": beta, "dt.weight": dt,
        "conv.weight": theirs.conv1d.weight[:, 0], "dt.bias": theirs.dt_bias, "a_log": theirs.A_log,
        "norm.weight": theirs.norm.weight, "o.weight": theirs.out_proj.weight,
    }  # fmt: skip


@pytest.mark.parametrize(
    "change", [{}, {"norm": {"name": "rmsnorm", "eps": 0.5}}, {"gate": False}, {"d_conv": 3}], ids=str
)
@torch.no_grad()
def test_it_is_qwens_mixer(config, site, context, change):
    theirs, x = qwens(), torch.randn(2, 19, D, generator=torch.Generator().manual_seed(2))
    sizes = {"n_heads": H, "n_key_heads": G, "d_key": N, "d_value": V}
    chosen = config("ssm", "gated_delta", **sizes | change)
    ours, state = chosen.component(chosen, site()), ours_of(theirs)
    held = {
        name: value[..., -3:] if change == {"d_conv": 3} and "conv" in name else value for name, value in state.items()
    }
    ours.load_state_dict({name: held[name] for name in ours.state_dict()}, strict=True)
    assert change or len(held) == len(ours.state_dict())
    error = (ours(x, context(19)) - theirs(x)).abs().max() / theirs(x).abs().max()
    assert error > 1e-2 if change else error < 1e-5


@pytest.fixture
def first_values():
    knobs = ["model/ssm@model.ssm=gated_delta", "model.pattern=[ssm]", "model.d_model=32", "model.n_layers=2"]
    spec = load(compose([*knobs, "model.ssm.n_heads=16"])).model.model_copy(update={"vocab_size": 40})
    return spec, [layer.get_submodule("mixer") for layer in build(spec, seed=3).layers]


def test_first_values_survive_the_model_wide_init(first_values):
    spec, mixers = first_values
    slot: Any = spec.slots["ssm"]
    for mixer in (*mixers, slot.component(slot, spec.site(0))):  # the last one is built alone
        steps = nn.functional.softplus(mixer.dt.bias)
        assert steps.min() >= 1e-3 and steps.max() <= 0.1 and steps.std() > 1e-3
        rates = mixer.a_log.exp()
        assert rates.min() >= 0.01 and rates.max() <= 16 and rates.std() > 1
        assert mixer.norm.weight.eq(1).all()


@pytest.mark.parametrize(
    ("knobs", "told"),
    [
        ({"n_heads": 4, "n_key_heads": 3}, "n_key_heads=4|n_key_heads=2"),
        ({"n_heads": 4, "dt_min": 0.2}, "less than dt_max"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(config, knobs, told):
    with pytest.raises(ValidationError) as caught:
        config("ssm", "gated_delta", **knobs)
    assert any(part in str(caught.value.errors()) for part in told.split("|"))


def test_widths_that_do_not_divide_are_a_finding(config, site):
    chosen = config("ssm", "gated_delta", n_heads=5)
    failed = [finding for finding in chosen.component.check(chosen, site()) if finding.status.name == "FAIL"]
    assert [finding.fix for finding in failed] == ["model.d_model=35, or a d_key"]
    fine = config("ssm", "gated_delta", n_heads=5, d_key=7)
    assert all(finding.status.name == "PASS" for finding in fine.component.check(fine, site()))


def test_sizes(config, site):
    """Qwen3-Next's proportions: 2 G N + 2 H V columns of projections, 2 H more, and H V back."""
    chosen = config("ssm", "gated_delta", n_heads=H, n_key_heads=G, d_key=N, d_value=V)
    mixer = chosen.component(chosen, site())
    channels = 2 * G * N + H * V
    count = D * (channels + H * V + 2 * H) + 4 * channels + 2 * H + V + H * V * D
    assert sum(parameter.numel() for parameter in mixer.parameters()) == count
    state = mixer.new_state(3, 999, device=torch.device("cpu"), dtype=torch.bfloat16)
    assert state.bytes() == 3 * (4 * H * N * V + 2 * 3 * channels)  # what decays in float32, inputs as they come
