"""Blocks against the residual order of chapter 3.5, written out; parts are stand-ins that remember their input."""

import pytest
import torch
from torch import nn

from builder import registry

D = 32


class Stand(nn.Module):
    """A part: an affine map, costing `cost` FLOPs a token."""

    def __init__(self, cost):
        super().__init__()
        self.map, self.cost = nn.Linear(D, D), cost

    def forward(self, x, ctx):
        return self.map(x)

    def flops(self, tokens):
        return self.cost * tokens


@pytest.fixture
def block(config, site, wide):
    def make(name, parts=("mixer", "ffn"), **knobs):
        chosen = config("block", name, **knobs)
        return wide(chosen.component(chosen, site(), {part: Stand(i + 1) for i, part in enumerate(parts)}))

    return make


def pre(b, x):
    u = x + b.mixer.map(b.mixer_norm(x))
    return u + b.ffn.map(b.ffn_norm(u))


def post(b, x):
    u = b.mixer_norm(x + b.mixer.map(x))
    return b.ffn_norm(u + b.ffn.map(u))


ORDERS = {"pre_norm": pre, "post_norm": post}


@pytest.mark.parametrize("name", ORDERS)
def test_equals_the_order_by_hand(block, context, name):
    b, x = block(name), torch.randn(2, 5, D, dtype=torch.float64)
    assert torch.allclose(b(x, context(5)), ORDERS[name](b, x), atol=1e-12)
    other = ORDERS["post_norm" if name == "pre_norm" else "pre_norm"]
    assert (b(x, context(5)) - other(b, x)).abs().max() > 1e-2


@pytest.mark.parametrize("name", registry.names("block"))
def test_a_layer_may_be_a_mixer_alone(block, context, name):
    b = block(name, parts=("mixer",))
    assert b(torch.randn(2, 5, D, dtype=torch.float64), context(5)).shape == (2, 5, D)
    assert {key.split(".")[0] for key in b.state_dict()} == {"mixer", "mixer_norm"}


@pytest.mark.parametrize("name", registry.names("block"))
def test_flops_are_those_of_the_parts(block, name):
    assert block(name).flops(7) == 7 * (1 + 2)


@pytest.mark.parametrize("name", registry.names("block"))
def test_dropout_acts_on_what_is_added_in_training_only(block, context, name):
    b, x = block(name, dropout=0.5), torch.randn(2, 5, D, dtype=torch.float64)
    assert torch.equal(b.eval()(x, context(5)), b(x, context(5)))
    assert not torch.equal(b.train()(x, context(5)), b(x, context(5)))
    with torch.no_grad():
        for part in ("mixer", "ffn"):
            b.get_submodule(part).map.weight.zero_(), b.get_submodule(part).map.bias.zero_()
    once = b.eval()(x, context(5))
    assert torch.equal(b.train()(x, context(5)), once), "the stream itself is never dropped"


@pytest.mark.parametrize("name", registry.names("block"))
def test_a_norm_of_its_own_replaces_the_models(block, name):
    b = block(name, norm={"name": "layernorm"})
    assert {type(m).__name__ for m in (b.mixer_norm, b.ffn_norm)} == {"LayerNorm"}
    assert {type(m).__name__ for m in (block(name).mixer_norm,)} == {"RMSNorm"}


def test_only_an_unnormalised_stream_needs_a_final_norm():
    needs = {name: registry.find("block", name).needs_final_norm for name in ORDERS}
    assert needs == {"pre_norm": True, "post_norm": False}
