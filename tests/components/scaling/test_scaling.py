"""Scaled frequencies against transformers' own functions, over widths, bases and factors; and what is refused."""

import math
from itertools import product

import pytest
import torch
from pydantic import ValidationError
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from builder import registry
from builder.model.positions import Positions

ORIGINAL, TARGET = 64, 512
CPU = torch.device("cpu")
KNOBS = {
    "linear": [{"factor": 1.0}, {"factor": 4.0}, {"factor": 2.5}],
    "dynamic": [{"factor": 1.0}, {"factor": 4.0}, {"factor": 2.5}],
    "llama3": [
        {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        {"factor": 32.0, "low_freq_factor": 2.0, "high_freq_factor": 5.0},
    ],
    "yarn": [
        {"factor": 1.0},
        {"factor": 4.0},
        {"factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.8},
        {"factor": 40.0, "mscale": 0.7},
        {"factor": 8.0, "attention_factor": 1.3},
        {"factor": 8.0, "beta_fast": 16.0, "beta_slow": 2.0},
        {"factor": 32.0, "truncate": False},
    ],
    "longrope": [{}, {"factor": 4.0}, {"attention_factor": 1.2}, {"factor": 1.0}],
}


def lists(width):
    return {
        "short_factor": [1 + 0.1 * i for i in range(width // 2)],
        "long_factor": [2.0 + i for i in range(width // 2)],
    }


def theirs(name, knobs, width, theta, reach):
    """(frequencies, factor) of transformers, from the config that says the same."""
    stated = {"rope_type": name, "rope_theta": theta, **knobs}
    longest = ORIGINAL if name == "dynamic" else TARGET  # what dynamic takes for the original length
    if name not in ("linear", "dynamic"):
        stated["original_max_position_embeddings"] = ORIGINAL
    config = LlamaConfig(head_dim=width, max_position_embeddings=longest, rope_parameters=stated)
    return ROPE_INIT_FUNCTIONS[name](config, CPU, seq_len=reach)


@pytest.fixture
def scaling(site):
    def make(name, train=ORIGINAL, deploy=TARGET, **knobs):
        config = registry.find("scaling", name).Config.model_validate({"name": name, **knobs})
        return config.component(config, site(train_length=train, deploy_length=deploy))

    return make


CASES = [(name, index) for name, every in KNOBS.items() for index in range(len(every))]


def test_every_scaling_is_tried():
    assert set(KNOBS) == set(registry.names("scaling"))


@pytest.mark.parametrize(("name", "index"), CASES)
@pytest.mark.parametrize("width", [4, 8, 64, 128])
def test_equals_transformers(scaling, name, index, width):
    knobs = KNOBS[name][index] | (lists(width) if name == "longrope" else {})
    made = scaling(name, **knobs)
    for theta, reach in product((500.0, 10000.0, 500000.0), (10, 64, 65, 400)):
        expected, factor = theirs(name, knobs, width, theta, reach)
        got = made.frequencies(theta, width, reach, CPU)
        assert got.dtype == torch.float32 and got.shape == (width // 2,)
        assert ((got - expected).abs() / expected).max() <= 1e-6
        assert math.isclose(made.factor, factor, rel_tol=1e-12)
        other = made.frequencies(theta * 1.1, width, reach, CPU)
        assert ((other - expected).abs() / expected).max() > 1e-2, "another base would be seen"


@pytest.mark.parametrize("name", ["linear", "dynamic", "llama3", "yarn"])
def test_another_factor_is_seen(scaling, name):
    expected, _ = theirs(name, KNOBS[name][-1], 64, 10000.0, 400)
    got = scaling(name, factor=3.3).frequencies(10000.0, 64, 400, CPU)
    assert ((got - expected).abs() / expected).max() > 1e-2


def test_the_original_length_is_the_train_length_unless_told(scaling):
    for name in ("dynamic", "yarn", "llama3"):
        told = scaling(name, train=16, factor=4.0, original_length=ORIGINAL).frequencies(1e4, 64, 400, CPU)
        assert torch.equal(told, scaling(name, factor=4.0).frequencies(1e4, 64, 400, CPU))
        assert not torch.equal(told, scaling(name, train=16, factor=4.0).frequencies(1e4, 64, 400, CPU))


@pytest.mark.parametrize("name", ["dynamic", "longrope"])
def test_reach_counts_only_past_the_original_length(scaling, name):
    made = scaling(name, **(lists(16) if name == "longrope" else {"factor": 2.0}))
    short, edge, past = (made.frequencies(1e4, 16, reach, CPU) for reach in (5, ORIGINAL, ORIGINAL + 1))
    assert torch.equal(short, edge) and not torch.equal(edge, past)


def test_scaled_rotations_are_multiplied_by_the_attention_factor(config, site):
    chosen = config("position", "rope", scaling={"name": "yarn", "factor": 4.0})
    scheme = chosen.component(chosen, site(train_length=ORIGINAL))
    x = torch.randn(1, 3, 2, 16, dtype=torch.float64)
    out = scheme.rotate(x, Positions(torch.tensor([[0, 5, 300]])))
    assert torch.allclose(out.norm(dim=-1), x.norm(dim=-1) * (0.1 * math.log(4) + 1), atol=1e-6)


def test_frequencies_do_not_follow_the_default_dtype(scaling):
    right = scaling("yarn", factor=4.0).frequencies(1e4, 64, 10, CPU)
    previous = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.bfloat16)
        assert torch.equal(scaling("yarn", factor=4.0).frequencies(1e4, 64, 10, CPU), right)
    finally:
        torch.set_default_dtype(previous)


@pytest.mark.parametrize(
    ("name", "knobs", "word"),
    [
        ("linear", {"factor": 0.5}, "factor"),
        ("linear", {}, "factor"),
        ("yarn", {"factor": 4.0, "beta_fast": 1.0}, "beta_slow"),
        ("llama3", {"factor": 4.0, "high_freq_factor": 1.0}, "low_freq_factor"),
        ("longrope", {"short_factor": [1.0]}, "long_factor"),
        ("longrope", {"short_factor": [], "long_factor": []}, "short_factor"),
        ("longrope", {"short_factor": [0.0], "long_factor": [1.0]}, "short_factor"),
    ],
)
def test_knobs_that_mean_nothing_are_refused(scaling, name, knobs, word):
    with pytest.raises(ValidationError, match=word):
        scaling(name, **knobs)


def test_lists_that_do_not_fit_name_both_numbers(config):
    chosen = config("position", "rope", scaling={"name": "longrope", **lists(16)})
    assert chosen.component.misfit(chosen, 16) is None
    assert "8 entries for 16 pairs" in chosen.component.misfit(chosen, 32)
    part = config("position", "rope", fraction=0.5, scaling={"name": "longrope", **lists(16)})
    assert part.component.misfit(part, 32) is None and part.component.misfit(part, 16)


def test_dynamic_needs_two_pairs(config):
    chosen = config("position", "rope", scaling={"name": "dynamic", "factor": 2.0})
    assert "4 or more" in chosen.component.misfit(chosen, 2) and chosen.component.misfit(chosen, 4) is None
