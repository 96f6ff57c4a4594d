"""Scans against the recurrence written as a loop over tokens, in float64: outputs, states and gradients."""

import math

import pytest
import torch

from builder.model.scan import chunk_length, compose, scan
from builder.model.selective_scan import scanned, selective_scan

LENGTHS = [1, 2, 3, 4, 5, 15, 16, 17, 31, 33, 64, 65]
CHUNKS = [None, 1, 2, 3, 8, 100]
KINDS = [torch.float64, torch.complex128]


def drawn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def pair(length, dtype=torch.float64, trailing=(3, 2)):
    """a of size about 1 and b, (2, T, ...), and a state ahead of them."""
    a, b = drawn(2, length, *trailing, dtype=dtype) * 0.8, drawn(2, length, *trailing, seed=1, dtype=dtype)
    return a, b, drawn(2, *trailing, seed=2, dtype=dtype)


def by_loop(a, b, initial=None):
    h, out = torch.zeros_like(b[:, 0]) if initial is None else initial, []
    for at, bt in zip(a.unbind(1), b.unbind(1), strict=True):
        h = at * h + bt
        out.append(h)
    return torch.stack(out, 1)


def gradients(function, *inputs):
    """Of sum(|output| weighed by where it stands), with respect to every input."""
    leaves = [v.clone().requires_grad_() for v in inputs]
    outputs = function(*leaves)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    weighed = [(out.abs() * torch.linspace(1, 2, out.numel()).view_as(out)).sum() for out in outputs]
    return torch.autograd.grad(sum(weighed), leaves)


def near(found, right, tolerance=1e-10):
    assert found.shape == right.shape
    assert (found - right).abs().max() <= tolerance * max(1.0, right.abs().max().item())


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_composition_is_associative_and_is_what_two_steps_do(dtype):
    first, second, third = [(drawn(5, seed=i, dtype=dtype), drawn(5, seed=9 + i, dtype=dtype)) for i in range(3)]
    left, right = compose(compose(third, second), first), compose(third, compose(second, first))
    near(left[0], right[0], 1e-14)
    near(left[1], right[1], 1e-14)
    h = drawn(5, seed=7, dtype=dtype)
    a, b = compose(second, first)
    near(a * h + b, second[0] * (first[0] * h + first[1]) + second[1], 1e-14)
    a, b = compose(first, second)
    assert (a * h + b - (second[0] * (first[0] * h + first[1]) + second[1])).abs().max() > 1e-2


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_the_scan_is_the_recurrence(length, chunk, dtype):
    a, b, initial = pair(length, dtype)
    near(scan(a, b, chunk=chunk), by_loop(a, b))
    near(scan(a, b, initial, chunk), by_loop(a, b, initial))


@pytest.mark.parametrize("chunk", [None, 1, 3, 100])
@pytest.mark.parametrize("length", [1, 2, 5, 16, 17])
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_its_gradients_are_those_through_the_loop(length, chunk, dtype):
    inputs = pair(length, dtype)
    found = gradients(lambda *v: scan(*v, chunk=chunk), *inputs)
    for ours, right in zip(found, gradients(by_loop, *inputs), strict=True):
        near(ours, right)


@pytest.mark.parametrize("trailing", [(), (3,), (2, 3, 4)], ids=str)
def test_any_trailing_shape(trailing):
    a, b, initial = pair(7, trailing=trailing)
    near(scan(a, b, initial), by_loop(a, b, initial))


def test_a_decay_of_nothing_forgets():
    a, b, initial = pair(9)
    a[:, 4] = 0
    near(scan(a, b, initial)[:, 4:], scan(a[:, 4:], b[:, 4:]), 1e-14)


def test_low_precision_is_computed_in_float32():
    a, b, initial = (v.bfloat16() for v in pair(33))
    found = scan(a, b, initial)
    assert found.dtype == torch.float32
    near(found.double(), by_loop(a.double(), b.double(), initial.double()), 1e-5)


def test_what_does_not_fit_is_refused():
    a, b, initial = pair(4)
    with pytest.raises(ValueError, match="don't fit together"):
        scan(a[:, :3], b)
    with pytest.raises(ValueError, match="don't fit together"):
        scan(a, b, initial[:1])


@pytest.mark.parametrize("length", [1, 2, 16, 1000, 1024, 8192])
def test_a_scan_takes_about_two_roots_of_steps(length):
    chunk = chunk_length(length)
    assert chunk + math.ceil(length / chunk) <= 3.2 * math.sqrt(length) + 1


B, D, N = 2, 11, 3


def selective(length):
    """x, dt, A, B, C and a state: channels that no block of 8 divides."""
    x, dt = drawn(B, length, D), drawn(B, length, D, seed=1).exp()
    a, b, c = -drawn(D, N, seed=2).exp(), drawn(B, length, N, seed=3), drawn(B, length, N, seed=4)
    return x, dt, a, b, c, drawn(B, D, N, seed=5)


def selective_by_loop(x, dt, a, b, c, initial, starts=None):
    h, ys = initial, []
    for t in range(x.shape[1]):
        if starts is not None:
            h = h * ~starts[:, t, None, None]
        h = (dt[:, t, :, None] * a).exp() * h + (dt[:, t] * x[:, t])[..., None] * b[:, t, None]
        ys.append((h * c[:, t, None]).sum(-1))
    return torch.stack(ys, 1), h


@pytest.fixture(params=[1 << 21, 1], ids=["all channels at once", "a few at a time"])
def at_once(request, monkeypatch):
    monkeypatch.setattr("builder.model.selective_scan._AT_ONCE", request.param)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("length", LENGTHS)
def test_the_selective_scan_is_the_recurrence(length, chunk):
    inputs = selective(length)
    for found, right in zip(selective_scan(*inputs, chunk=chunk), selective_by_loop(*inputs), strict=True):
        near(found, right)


@pytest.mark.parametrize("length", [3, 17, 40])
def test_nothing_passes_the_start_of_a_document(length):
    *inputs, initial = selective(length)
    starts = torch.rand(B, length, generator=torch.Generator().manual_seed(0)) < 0.2
    starts[:, 2] = True
    found = selective_scan(*inputs, initial, starts, chunk=8)
    for ours, right in zip(found, selective_by_loop(*inputs, initial, starts), strict=True):
        near(ours, right)
    assert (found[0] - selective_scan(*inputs, initial)[0]).abs().max() > 1e-2


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("chunk", [None, 1, 4, 100])
@pytest.mark.parametrize("length", [1, 2, 16, 19])
def test_its_gradients_are_those_through_the_recurrence(length, chunk, packed):
    inputs, starts = selective(length), None
    if packed:
        starts = torch.rand(B, length, generator=torch.Generator().manual_seed(0)) < 0.3
    found = gradients(lambda *v: selective_scan(*v, starts, chunk), *inputs)
    for ours, right in zip(found, gradients(lambda *v: selective_by_loop(*v, starts), *inputs), strict=True):
        near(ours, right)


def test_steps_of_nothing_leave_the_state():
    x, dt, a, b, c, initial = selective(9)
    dt[:, 5:] = 0
    whole, part = (
        selective_scan(x, dt, a, b, c, initial),
        selective_scan(*(v[:, :5] for v in (x, dt)), a, b[:, :5], c[:, :5], initial),
    )
    near(whole[1], part[1], 1e-14)


def test_large_steps_and_rates_stay_finite():
    x, dt, a, b, c, _ = (v.float() for v in selective(40))
    leaves = [v.clone().requires_grad_() for v in (x, dt * 1e3, a * 1e3, b, c)]
    y, _ = selective_scan(*leaves)
    y.sum().backward()
    assert y.isfinite().all()
    assert all(leaf.grad.isfinite().all() for leaf in leaves)


def test_autocast_leaves_it_alone():
    inputs = [v.float() for v in selective(20)]
    with torch.autocast("cpu", torch.bfloat16):
        found = selective_scan(*inputs)
    for ours, right in zip(found, selective_scan(*inputs), strict=True):
        assert torch.equal(ours, right)


@pytest.mark.parametrize("length", [1, 10, 16, 17, 1024, 1030])
def test_the_steps_that_are_computed_are_whole_chunks(length):
    assert length <= scanned(length) <= length + 15
    assert scanned(1024) == 1024
