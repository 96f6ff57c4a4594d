"""Norms against the formulas of chapter 3.5 in float64, against torch's modules, and on inputs of low precision."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.olmo.modeling_olmo import OlmoLayerNorm

from builder import registry
from builder.components.init import roles
from builder.training.optimizer import decay_groups

D = 24
DEVICES = ["cpu", *["cuda"] * torch.cuda.is_available()]


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
@pytest.mark.parametrize("shape", [(D,), (2, 3, D)])
@pytest.mark.parametrize("eps", [1e-6, 0.5])
def test_gradients_are_those_of_the_formula(norm, name, shape, eps):
    """RMSNorm borrows a backward pass of LayerNorm: each one's must not be the other's."""
    module, x, dy = norm(name, eps=eps), torch.randn(shape, dtype=torch.float64) + 1, torch.randn(shape).double()
    x.requires_grad_()
    module(x).backward(dy)
    (dx,) = torch.autograd.grad(FORMULAS[name](x, *parameters(module), eps), x, dy, retain_graph=True)
    (dgain,) = torch.autograd.grad(FORMULAS[name](x, *parameters(module), eps), module.weight, dy)
    assert torch.allclose(x.grad, dx, atol=1e-12) and torch.allclose(module.weight.grad, dgain, atol=1e-12)
    other = FORMULAS["rmsnorm" if name == "layernorm" else "layernorm"](x, *parameters(module), eps)
    assert (torch.autograd.grad(other, x, dy)[0] - dx).abs().max() > 1e-2


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


VARIANTS = {
    "layernorm": ("layernorm", {}, "layernorm"),
    "layernorm without shift": ("layernorm", {"bias": False}, "layernorm"),
    "rmsnorm": ("rmsnorm", {}, "rmsnorm"),
    "rmsnorm from 1": ("rmsnorm", {"unit_offset": True}, "rmsnorm"),
    "nonparametric": ("nonparametric", {}, "layernorm"),
    "nonparametric, not centred": ("nonparametric", {"center": False}, "rmsnorm"),
}


def fresh(config, variant, width):
    name, knobs, formula = VARIANTS[variant]
    chosen = config("norm", name, **knobs)
    return chosen.component(chosen, width), FORMULAS[formula], config("norm", name).eps


def factor(module):
    """What a norm multiplies by, in float64."""
    weight = getattr(module, "weight", None)
    return 1.0 if weight is None else weight.double() + (1.0 if getattr(module, "unit_offset", False) else 0.0)


def test_every_norm_is_a_variant_here():
    assert {name for name, _, _ in VARIANTS.values()} == set(registry.names("norm"))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(("mean", "size"), [(0.0, 1.0), (3000.0, 30.0), (0.0, 1e-3), (0.0, 1e4)])
@pytest.mark.parametrize("variant", VARIANTS)
def test_only_the_output_is_rounded(config, variant, mean, size, dtype, device):
    module, formula, eps = fresh(config, variant, 4096)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0.0, 0.2)
    module, x = module.to(device, dtype), (mean + size * torch.randn(4, 4096)).to(device, dtype)
    shift = module.bias.double() if getattr(module, "bias", None) is not None else 0.0
    right, ours = formula(x.double(), factor(module), shift, eps), module(x)
    assert ours.dtype == dtype and ours.isfinite().all()
    loss = torch.finfo(dtype).eps * right.abs() + 4096 * 2**-24 * right.abs().max()  # its rounding, float32's sums
    if VARIANTS[variant][2] == "layernorm":  # what float32 loses of x - mean before it is scaled
        loss = loss + 2**-22 * (x.double().abs().max() / x.double().std()) * (right - shift).abs().max()
    assert ((ours.double() - right).abs() <= loss).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_statistics_that_are_rounded_would_be_seen(dtype):
    x = (3000.0 + 30.0 * torch.randn(4, 4096)).to(dtype)
    mean = x.mean(-1, keepdim=True)  # right sums, rounded to the dtype of x
    rounded = (x - mean) / (x - mean).square().mean(-1, keepdim=True).sqrt()
    right = layer_norm(x.double(), 1.0, 0.0, 1e-5)
    assert (rounded.double() - right).abs().max() > 4 * torch.finfo(dtype).eps * right.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_factor_from_one_equals_gemmas(config, dtype):
    ours, theirs, x = fresh(config, "rmsnorm from 1", D)[0], GemmaRMSNorm(D), torch.randn(64, D, dtype=dtype) * 3
    assert (ours.weight == 0).all() and (theirs.weight == 0).all()
    with torch.no_grad():
        theirs.weight.normal_(0.0, 0.2)
    ours.load_state_dict(theirs.state_dict())
    ours, theirs = ours.to(dtype), theirs.to(dtype)
    assert (ours(x) - theirs(x)).abs().max() <= (0 if dtype == torch.bfloat16 else 1e-6)
    plain = fresh(config, "rmsnorm", D)[0].to(dtype)
    plain.load_state_dict(theirs.state_dict())
    assert (plain(x) - theirs(x)).abs().max() > 0.5, "the 1 is left out"
    if dtype == torch.bfloat16:
        assert not torch.equal(F.rms_norm(x, (D,), 1 + ours.weight, 1e-6), theirs(x)), "1 + w was rounded"


def test_in_bfloat16_rmsnorm_rounds_once_where_llamas_rounds_twice(config):
    ours, theirs = fresh(config, "rmsnorm", D)[0], LlamaRMSNorm(D)
    with torch.no_grad():
        theirs.weight.normal_(1.0, 0.2)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(64, D) * 3
    assert (ours(x) - theirs(x)).abs().max() <= 1e-6
    ours, theirs, x = ours.bfloat16(), theirs.bfloat16(), x.bfloat16()
    right = rms_norm(x.double(), ours.weight.double(), 0.0, 1e-6)
    once, twice = ((out.double() - right).abs().mean() for out in (ours(x), theirs(x)))
    assert once < twice and not torch.equal(ours(x), theirs(x))
    assert torch.equal(ours(x), right.to(torch.bfloat16))
    assert ((ours(x).double() - theirs(x).double()).abs() <= 2 * 2**-8 * right.abs()).all(), "but by one rounding"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nonparametric_equals_olmos(config, dtype):
    ours, x = fresh(config, "nonparametric", D)[0], (torch.randn(8, D) * 3 + 5).to(dtype)
    assert torch.equal(ours(x), OlmoLayerNorm(D)(x)) and not list(ours.parameters())
    other = fresh(config, "nonparametric, not centred", D)[0]
    assert (other(x) - ours(x)).abs().max() > 0.1


@pytest.mark.parametrize("init", registry.names("init"))
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_factor_starts_from_one_and_does_not_decay(config, site, variant, init):
    module, _, _ = fresh(config, variant, D)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(7.0)
    chosen = config("init", init)
    chosen.component(chosen, site()).apply(module, torch.Generator().manual_seed(0))
    assert torch.as_tensor(factor(module) == 1.0).all()
    assert all(role is not None for *_, role in roles(module))
    assert all(group["weight_decay"] == 0.0 for group in decay_groups(module, 0.1))


def test_in_autocast_on_a_cpu_rmsnorm_is_of_float32_and_no_kernel_is_missed(config, recwarn):
    """x comes in bfloat16 from a linear map, g is float32: torch would warn, and go over memory for each operation."""
    norm, x = fresh(config, "rmsnorm", D)[0], torch.randn(64, D).bfloat16().requires_grad_()
    exact, right = x.detach().double().requires_grad_(), norm.weight.detach().double().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        out = norm(x)
    found = torch.autograd.grad(out, (x, norm.weight), torch.ones_like(out))
    expected = rms_norm(exact, right, 0.0, norm.eps)
    grads = torch.autograd.grad(expected, (exact, right), torch.ones_like(expected))
    assert out.dtype == torch.bfloat16 and not recwarn.list
    assert torch.equal(out, expected.to(torch.bfloat16)) and torch.equal(found[0], grads[0].to(torch.bfloat16))
    assert found[1].dtype == torch.float32 and (found[1].double() - grads[1]).abs().max() < 1e-4
