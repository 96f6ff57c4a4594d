"""Feed-forward parts against the formulas of chapter 3.5, each activation written out with math's own functions."""

import math

import pytest
import torch

from builder import registry
from builder.model.activations import ACTIVATIONS

D, F = 32, 12
BY_HAND = {
    "relu": lambda z: max(z, 0.0),
    "gelu": lambda z: z * 0.5 * (1 + math.erf(z / math.sqrt(2))),
    "gelu_tanh": lambda z: 0.5 * z * (1 + math.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))),
    "relu_squared": lambda z: max(z, 0.0) ** 2,
    "silu": lambda z: z / (1 + math.exp(-z)),
    "quick_gelu": lambda z: z / (1 + math.exp(-1.702 * z)),
    "tanh": lambda z: 1 - 2 / (math.exp(2 * z) + 1),
}
MATRICES = {"mlp": 2, "glu": 3}


@pytest.fixture
def ffn(config, site, wide):
    def make(name, **knobs):
        chosen = config("ffn", name, **({"d_ff": F} if name in MATRICES else {}), **knobs)
        return wide(chosen.component(chosen, site()))

    return make


def affine(linear, x):
    return x @ linear.weight.T + (0 if linear.bias is None else linear.bias)


def by_hand(name, module, x, activation):
    act = lambda z: z.detach().clone().apply_(BY_HAND[activation])  # noqa: E731
    if name == "mlp":
        return affine(module.down, act(affine(module.up, x)))
    return affine(module.down, act(affine(module.gate, x)) * affine(module.up, x))


def test_every_activation_is_written_out_here():
    assert set(BY_HAND) == set(ACTIVATIONS) and set(MATRICES) <= set(registry.names("ffn"))


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", BY_HAND)
@pytest.mark.parametrize("name", MATRICES)
def test_equals_the_formula(ffn, context, name, activation, bias, learns):
    module, x = ffn(name, activation=activation, bias=bias), torch.randn(2, 5, D, dtype=torch.float64) * 3
    given = x.clone()
    with torch.set_grad_enabled(learns):
        out = module(x, context(5))
    assert out.requires_grad == learns and torch.equal(x, given)
    assert torch.allclose(out, by_hand(name, module, x, activation), atol=1e-12)
    assert (out - by_hand(name, module, x, "silu" if activation == "relu" else "relu")).abs().max() > 1e-3


def test_gate_and_up_are_not_interchanged(ffn, context):
    module, x = ffn("glu"), torch.randn(2, 5, D, dtype=torch.float64) * 3
    out = module(x, context(5))
    module.gate, module.up = module.up, module.gate
    assert (out - module(x, context(5))).abs().max() > 1e-2


@pytest.mark.parametrize(("limit", "offset"), [(0.5, 0.0), (None, 1.0), (0.5, 1.0)])
def test_a_limited_glu_equals_the_formula(ffn, context, limit, offset):
    """As gpt-oss writes it: the gate is cut from above, the rest on both sides, and 1 is added to that."""
    module = ffn("glu", activation="quick_gelu", bias=True, limit=limit, offset=offset)
    x = 9 * torch.randn(2, 5, D, dtype=torch.float64)
    gate, up = affine(module.gate, x).detach(), affine(module.up, x)
    assert gate.max() > 0.5 and up.max() > 0.5 and up.min() < -0.5, "something is cut"
    most = math.inf if limit is None else limit
    act = gate.clone().apply_(lambda z: BY_HAND["quick_gelu"](min(z, most)))
    out = module(x, context(5))
    with torch.no_grad():
        assert torch.equal(module(x, context(5)), out)
    assert torch.allclose(out, affine(module.down, act * (up.clamp(-most, most) + offset)), atol=1e-12)
    assert (out - by_hand("glu", module, x, "quick_gelu")).abs().max() > 1e-2


@pytest.mark.parametrize("knobs", [{"gate_scale": 0.3}, {"scale": 2.5}], ids=str)
def test_a_scaled_glu_equals_the_formula(ffn, context, knobs):
    """As Falcon-H1 writes it: biases are scaled too."""
    module, x = ffn("glu", bias=True, **knobs), torch.randn(2, 5, D, dtype=torch.float64)
    gate = knobs.get("gate_scale", 1.0) * affine(module.gate, x).detach()
    right = affine(module.down, gate.apply_(BY_HAND["silu"]) * affine(module.up, x)) * knobs.get("scale", 1.0)
    assert torch.allclose(module(x, context(5)), right, atol=1e-12)
    assert (module(x, context(5)) - by_hand("glu", module, x, "silu")).abs().max() > 1e-2


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", MATRICES)
def test_parameters_follow_the_formula(ffn, name, bias):
    biases = ((MATRICES[name] - 1) * F + D) * bias
    assert sum(p.numel() for p in ffn(name, bias=bias).parameters()) == MATRICES[name] * D * F + biases


@pytest.mark.parametrize("name", registry.names("ffn"))
def test_each_position_is_transformed_alone(ffn, context, name):
    module, x = ffn(name), torch.randn(1, 5, D, dtype=torch.float64)
    one = torch.cat([module(x[:, t : t + 1], context(1)) for t in range(5)], dim=1)
    assert torch.allclose(module(x, context(5)), one, atol=1e-12)


@pytest.mark.parametrize("name", MATRICES)
def test_what_writes_to_the_stream_says_so(ffn, name):
    roles = {child: module.roles["weight"] for child, module in ffn(name).named_children() if hasattr(module, "roles")}
    assert roles.pop("down") == "residual" and set(roles.values()) == {"matrix"}
