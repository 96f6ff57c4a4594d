"""First values that a state-space layer lives by: in a model, alone, and after its weights were loaded."""

import copy

import pytest
import torch

from builder import registry
from builder.components.init import roles
from builder.model.assemble import build
from builder.model.row_state import RowState
from builder.spec import ModelSpec
from builder.training.optimizer import parts
from tests.choices import slot

LEAST, MOST = 1e-3, 0.1


def model(name, init, seed=0, **knobs):
    usual = dict(d_model=64, n_layers=2, vocab_size=37, train_length=64, deploy_length=64, pattern=("mixer",))
    names = dict(norm="rmsnorm", block="pre_norm", position="none")
    slots = {key: {"name": value} for key, value in names.items()}
    slots |= {"init": slot("init", init), "mixer": slot("ssm", name, **knobs)}
    return build(ModelSpec.model_validate(usual | slots), seed=seed)


def holds(mixer):
    """The first values of a Mamba layer: rates, steps, the passing input, and a convolution that is drawn."""
    rates = -mixer.a_log.exp()
    assert (rates + torch.arange(1, mixer.size + 1)).abs().max() <= 1e-5
    bias = mixer.dt_b.bias
    steps = torch.nn.functional.softplus(bias)
    assert LEAST * 0.999 <= steps.min() < steps.median() / 2 < steps.max() <= MOST * 1.001
    assert bias.min() >= -6.9073 and bias.max() <= -2.2521
    assert torch.equal(mixer.d, torch.ones_like(mixer.d))
    assert mixer.dt_b.weight.abs().max() <= mixer.dt_b.in_features**-0.5
    assert mixer.dt_b.weight.std() > 0.4 * mixer.dt_b.in_features**-0.5
    assert 0.4 < mixer.conv.weight.abs().max() <= 0.5
    assert not mixer.conv.bias.any()


@pytest.mark.parametrize("init", registry.names("init"))
def test_a_model_wide_init_leaves_them(init):
    for block in model("mamba", init).layers:
        holds(block.mixer)


def test_a_layer_that_is_built_alone_has_them(layer):
    holds(layer("mamba", d_model=64))


def test_an_init_that_draws_them_is_seen():
    made = model("mamba", "normal")
    with torch.no_grad():
        made.layers[0].mixer.dt_b.bias.zero_()
    with pytest.raises(AssertionError):
        holds(made.layers[0].mixer)


def test_loading_draws_nothing_again():
    made = model("mamba", "normal")
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.5)
    kept = copy.deepcopy(made.state_dict())
    other = model("mamba", "normal", seed=1)
    other.load_state_dict(kept)
    for name, tensor in other.state_dict().items():
        assert torch.equal(tensor, kept[name])


def test_a_seed_decides_them_and_leaves_the_others_to_chance():
    first, again, other = (model("mamba", "normal", seed=seed).layers[0].mixer for seed in (0, 0, 1))
    assert torch.equal(first.dt_b.bias, again.dt_b.bias)
    assert torch.equal(first.conv.weight, again.conv.weight)
    assert not torch.equal(first.dt_b.bias, other.dt_b.bias)


@pytest.mark.parametrize("name", registry.names("ssm"))
def test_every_parameter_has_a_role_and_its_own_does_not_decay(name):
    made = model(name, "normal")
    found = {parameter: role for _, _, parameter, role in roles(made)}
    assert None not in found.values()
    for parameter, _, decays in parts(made):
        assert not (decays and found[parameter] == "own")


@pytest.mark.parametrize("name", registry.names("ssm"))
@torch.no_grad()
def test_state_stays_in_float32_in_a_model_of_bfloat16(name):
    made = model(name, "normal").to(torch.bfloat16)
    state = made.new_state(1, 8)
    made(torch.arange(8)[None], state=state)
    for layer in state.layers:
        held = layer if isinstance(layer, RowState) else layer.parts[-1]  # beside that of an attention
        assert any(key != "inputs" for key in held.parts)
        for key, part in held.parts.items():
            assert part.dtype == (torch.bfloat16 if key == "inputs" else torch.float32) or part.dtype.is_complex
