"""Griffin's recurrence: a loop in float64 and transformers' block as oracles, its first values, what is refused."""

from importlib import import_module

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from builder import registry
from builder.model.assemble import build
from builder.spec import ModelSpec
from tests.choices import slot

D, E, BLOCKS, T = 32, 24, 4, 19


def loop(mixer, x):
    """The recurrence as the paper writes it (De et al. 2024, section 2.4), token by token, of one document."""
    inputs, size, kept, out = mixer.input(x), E // BLOCKS, torch.zeros(len(x), E, dtype=x.dtype), []

    def gate(blocks, u):
        parts = [u[:, n * size : (n + 1) * size] @ blocks.weight[n].T + blocks.bias[n] for n in range(BLOCKS)]
        return torch.cat(parts, dim=-1).sigmoid()

    for t in range(x.shape[1]):
        taps = range(max(0, t - mixer.conv.width + 1), t + 1)
        u = sum(inputs[:, s] * mixer.conv.weight[:, mixer.conv.width - 1 - (t - s)] for s in taps) + mixer.conv.bias
        a = nn.functional.softplus(mixer.decay).neg().exp() ** (8 * gate(mixer.decay_gate, u))
        taken = gate(mixer.input_gate, u) * u
        kept = taken if t == 0 else a * kept + (1 - a.square()).sqrt() * taken
        out.append(kept)
    return mixer.output(torch.stack(out, dim=1) * nn.functional.gelu(mixer.gate(x), approximate="tanh"))


def test_it_is_the_recurrence_and_so_are_its_gradients(layer, wide, context):
    mixer = wide(layer("rglru", d_inner=E, n_blocks=BLOCKS))
    x, weight = torch.randn(2, T, D, dtype=torch.float64), torch.randn(2, T, D, dtype=torch.float64)
    found, right = mixer(x, context(T)), loop(mixer, x)
    assert (found - right).abs().max() <= 1e-12 * right.abs().max()
    parameters = [*mixer.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad((found * weight).sum(), parameters),
        torch.autograd.grad((right * weight).sum(), parameters),
        strict=True,
    ):
        assert (ours - theirs).abs().max() <= 1e-10 * max(1.0, theirs.abs().max().item())


def drawn():
    """The decays of RecurrentGemma's recurrence as transformers draws them."""
    home = import_module("transformers.models.recurrent_gemma.modeling_recurrent_gemma")
    config = home.RecurrentGemmaConfig(
        vocab_size=2, hidden_size=4096, num_attention_heads=256, intermediate_size=8, num_hidden_layers=1
    )
    lru = home.RecurrentGemmaRglru(config)
    with torch.device("meta"):
        home.RecurrentGemmaForCausalLM(config)._init_weights(lru)
    return lru.recurrent_param


@pytest.mark.parametrize("init", registry.names("init"))
def test_first_values_survive_a_model_wide_init(init):
    """The radii lie as in their block: between 0.9 and 0.999, their squares evenly."""
    facts = dict(d_model=32, n_layers=1, vocab_size=2, train_length=8, deploy_length=8, pattern=("mixer",))
    slots = {"norm": {"name": "rmsnorm"}, "block": {"name": "pre_norm"}, "position": {"name": "none"}}
    slots |= {"init": slot("init", init), "mixer": slot("ssm", "rglru", d_inner=4096, n_blocks=256)}
    mixer = build(ModelSpec.model_validate(facts | slots), seed=3).layers[0].mixer
    spread = []
    for decay in (mixer.decay, drawn()):
        radius = nn.functional.softplus(decay.double()).neg().exp()
        assert radius.min() >= 0.8999 and radius.max() <= 0.9991
        spread.append(radius.square().quantile(torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)))
    assert (spread[0] - spread[1]).abs().max() < 0.02
    assert (spread[0] - torch.tensor([0.829, 0.904, 0.979])).abs().max() < 0.01


def test_gates_that_are_shut_give_no_gradient_without_bound(layer, wide, context):
    """Where r = 0 the root of 1 - a^2 is that of 0, whose slope has no end."""
    mixer, x = wide(layer("rglru", d_inner=E, n_blocks=BLOCKS)).float(), torch.randn(1, 5, D)
    with torch.no_grad():
        mixer.decay_gate.bias.fill_(-200.0)
    mixer(x, context(5)).square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in mixer.parameters())


def test_what_does_not_fit_is_told(config, site):
    with pytest.raises(ValidationError, match="less than decay_max"):
        config("ssm", "rglru", n_blocks=4, decay_min=0.999)
    chosen = config("ssm", "rglru", n_blocks=5)
    failed = [finding for finding in chosen.component.check(chosen, site()) if finding.status.name == "FAIL"]
    assert [(finding.path, finding.fix) for finding in failed] == [("n_blocks", "n_blocks=4")]
    fine = config("ssm", "rglru", n_blocks=4)
    assert all(finding.status.name == "PASS" for finding in fine.component.check(fine, site()))


def test_its_state_is_the_numbers_that_it_states(layer, config, site):
    chosen = config("ssm", "rglru", n_blocks=4, d_inner=E)
    (told,) = [finding.rule for finding in chosen.component.check(chosen, site())]
    state = layer("rglru", d_inner=E).new_state(1, 9, device=torch.device("cpu"), dtype=torch.float32)
    assert state.bytes() == 4 * (4 * E + 1) and told.startswith(f"{4 * E + 1} numbers")
