"""The time-invariant layer: its discretisation against scipy's, its convolution and its scan against the recurrence."""

import math

import numpy as np
import pytest
import torch
from scipy.linalg import block_diag
from scipy.signal import cont2discrete

from builder import registry
from builder.model.mask import Mask

D, T = 6, 23
RULES = {"zoh": [0.5, 0.25, 0.125, 0.5625], "bilinear": [0.514749, 0.249782, 0.121207, 0.573565]}
FORMS = [(rates, rule) for rates in ("complex", "real") for rule in RULES]


@pytest.fixture
def s4d(layer, wide):
    """s4d(**knobs): a layer in float64, drawn wide, whose output map is the identity."""

    def make(**knobs):
        made = wide(layer("s4d", d_model=D, **{"d_state": 6} | knobs))
        with torch.no_grad():
            made.output.weight.copy_(torch.eye(D))
        return made

    return make


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("trained", ["convolution", "scan"])
@torch.no_grad()
def test_one_state_by_hand(layer, context, rule, trained):
    """A = -1, dt = ln 2, B = C = 1, D = 0 on 1, 0, 0, 1."""
    made = layer("s4d", d_model=1, d_state=1, rates="real", discretisation=rule, trained=trained).double()
    for name, value in {"log_dt": math.log(math.log(2)), "a_log": 0.0, "c": 1.0, "d": 0.0}.items():
        made.get_parameter(name).fill_(value)
    made.output.weight.fill_(1.0)
    x = torch.tensor([1.0, 0, 0, 1], dtype=torch.float64).view(1, 4, 1)
    right = torch.tensor(RULES[rule], dtype=torch.float64)
    assert (made(x, context(4)).flatten() - torch.nn.functional.gelu(right)).abs().max() <= 1e-6
    other = torch.tensor(next(numbers for name, numbers in RULES.items() if name != rule), dtype=torch.float64)
    assert (made(x, context(4)).flatten() - torch.nn.functional.gelu(other)).abs().max() > 1e-3


def as_real(made, channel):
    """(A, B, C) of a channel as real matrices: a complex rate is a rotation of two numbers."""
    real = (-made.a_log[channel].exp()).tolist()
    if made.a_im is None:
        return np.diag(real), np.ones((made.size, 1)), made.c[channel, :, 0].numpy()[None]
    pairs = zip(real, made.a_im[channel].tolist(), strict=True)
    blocks = [[[re, -im], [im, re]] for re, im in pairs]
    c = 2 * made.c[channel] * torch.tensor([1.0, -1.0])
    return block_diag(*blocks), np.tile([[1.0], [0.0]], (made.size, 1)), c.flatten().numpy()[None]


def by_scipy(made, x, rule):
    """Each channel's system, discretised by scipy and gone through token by token."""
    out = torch.zeros_like(x)
    for channel in range(D):
        a, b, c = as_real(made, channel)
        dt, d = made.log_dt[channel].exp().item(), made.d[channel].item()
        a, b, *_ = cont2discrete((a, b, c, np.zeros((1, 1))), dt, rule)
        for row in range(len(x)):
            h = np.zeros((len(a), 1))
            for t, value in enumerate(x[row, :, channel].tolist()):
                h = a @ h + b * value
                out[row, t, channel] = (c @ h).item() + d * value
    return torch.nn.functional.gelu(out)


@pytest.mark.parametrize("trained", ["convolution", "scan"])
@pytest.mark.parametrize(("rates", "rule"), FORMS)
@torch.no_grad()
def test_it_is_the_system_that_scipy_discretises(s4d, context, rates, rule, trained):
    made = s4d(rates=rates, discretisation=rule, trained=trained)
    x = torch.randn(2, T, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found, right = made(x, context(T)), by_scipy(made, x, rule)
    assert (found - right).abs().max() <= 1e-8 * max(1.0, right.abs().max().item())
    other = by_scipy(made, x, next(name for name in RULES if name != rule))
    assert (found - other).abs().max() > 1e-3


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 15, 16, 17, 31, 33, 64, 65])
@pytest.mark.parametrize(("rates", "rule"), FORMS)
@torch.no_grad()
def test_convolution_scan_and_recurrence_are_one(s4d, context, rates, rule, length):
    made = s4d(rates=rates, discretisation=rule)
    x = torch.randn(2, length, D, dtype=torch.float64, generator=torch.Generator().manual_seed(length))
    convolved, state = made(x, context(length)), made.new_state(2, length, device=x.device, dtype=x.dtype)
    made.convolves = False
    scanned = made(x, context(length))
    stepped = [made(x[:, t : t + 1], context(1, state=state, mask=Mask(past=t))) for t in range(length)]
    for found in (scanned, torch.cat(stepped, 1)):
        assert (found - convolved).abs().max() <= 1e-10 * max(1.0, convolved.abs().max().item())


@pytest.mark.parametrize(("rates", "rule"), FORMS)
def test_gradients_of_convolution_and_scan_are_the_same(s4d, context, rates, rule):
    made, x = s4d(rates=rates, discretisation=rule), torch.randn(2, 17, D, dtype=torch.float64)
    found = []
    for made.convolves in (True, False):
        out = (made(x, context(17)) * torch.linspace(-1, 1, D)).sum()
        found.append(torch.autograd.grad(out, [*made.parameters()]))
    for one, other in zip(*found, strict=True):
        assert (one - other).abs().max() <= 1e-9 * max(1.0, one.abs().max().item())


@pytest.mark.parametrize("init", registry.names("init"))
@pytest.mark.parametrize("rates", ["complex", "real"])
def test_first_values(layer, config, site, rates, init):
    made = layer("s4d", d_model=64, rates=rates)
    chosen = config("init", init)
    kind = chosen.component
    for _ in range(2):  # alone, then after a model-wide init
        order = torch.arange(made.size)
        if rates == "real":
            assert (made.a_log.exp() - (order + 1)).abs().max() <= 1e-5
        else:
            assert (made.a_log.exp() - 0.5).abs().max() <= 1e-6
            assert (made.a_im - math.pi * order).abs().max() <= 1e-5
        steps = made.log_dt.exp()
        assert 0.999e-3 <= steps.min() < steps.median() / 2 < steps.max() <= 0.1001
        assert torch.equal(made.d, torch.ones(64))
        kind(chosen, site(d_model=64)).apply(made)


def test_an_odd_state_of_complex_rates_is_refused(layer):
    with pytest.raises(ValueError, match="two numbers of a state"):
        layer("s4d", d_state=5)
    assert layer("s4d", d_state=5, rates="real").size == 5
