"""Norms against the formulas of chapter 3.5 in float64, against torch's modules, and on inputs of low precision."""

import pytest
import torch
from torch import nn

D = 24


def layer_norm(x, scale, shift, eps):
    mean = x.mean(-1, keepdim=True)
    return scale * (x - mean) / ((x - mean).square().mean(-1, keepdim=True) + eps).sqrt() + shift


def rms_norm(x, scale, shift, eps):
    return scale * x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


FORMULAS = {"layernorm": layer_norm, "rmsnorm": rms_norm}
THEIRS = {"layernorm": nn.LayerNorm, "rmsnorm": nn.RMSNorm}


@pytest.fixture
def norm(config, wide):
    def make(name, **knobs):
        chosen = config("norm", name, **knobs)
        return wide(chosen.component(chosen, D))

    return make


def parameters(module):
    shift = getattr(module, "bias", None)
    return module.weight.double(), torch.zeros(D).double() if shift is None else shift.double()


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("eps", [1e-6, 1e-5, 0.5])
@pytest.mark.parametrize("shape", [(D,), (2, 3, D)])
def test_equals_the_formula(norm, name, eps, shape):
    module, x = norm(name, eps=eps), torch.randn(shape, dtype=torch.float64) * 3 + 3
    assert torch.allclose(module(x), FORMULAS[name](x, *parameters(module), eps), atol=1e-12)
    other = FORMULAS["rmsnorm" if name == "layernorm" else "layernorm"]
    assert (module(x) - other(x, *parameters(module), eps)).abs().max() > 1e-2


@pytest.mark.parametrize("name", FORMULAS)
def test_a_vector_of_zeros_stays_finite_with_finite_gradients(norm, name):
    x = torch.zeros(2, D, dtype=torch.float64, requires_grad=True)
    norm(name)(x).sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("name", FORMULAS)
def test_equals_torchs_own_module(norm, name):
    module, theirs = norm(name, eps=1e-3), THEIRS[name](D, eps=1e-3).double()
    theirs.load_state_dict(module.state_dict())
    x = torch.randn(2, 3, D, dtype=torch.float64)
    assert torch.allclose(module(x), theirs(x), atol=1e-12)


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_statistics_of_bfloat16_are_taken_in_float32(norm, name, scale):
    module, wide = norm(name).bfloat16(), 4096
    module.weight = nn.Parameter(torch.ones(wide).bfloat16())
    if getattr(module, "bias", None) is not None:
        module.bias = nn.Parameter(torch.zeros(wide).bfloat16())
    x = (torch.randn(4, wide) * scale + scale).bfloat16()
    right = FORMULAS[name](x.double(), 1.0, 0.0, module.eps)
    assert module(x).dtype == torch.bfloat16
    assert (module(x).double() - right).abs().max() <= 2 * 2**-8 * right.abs().max(), "more than the last rounding"
    total = x.new_zeros(4)
    for column in x.T:  # what a sum in bfloat16 gives
        total = total + column.square()
    assert ((total / wide).double() / x.double().square().mean(-1) - 1).abs().min() > 0.1


def test_defaults_and_the_shift_that_can_be_left_out(config):
    assert config("norm", "layernorm").eps == 1e-5 and config("norm", "rmsnorm").eps == 1e-6
    chosen = config("norm", "layernorm", bias=False)
    module = chosen.component(chosen, D)
    assert module.bias is None and list(module.state_dict()) == ["weight"]
