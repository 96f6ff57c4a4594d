"""Every kernel against a float64 loop over heads, queries and visible keys: masks x biases x soft-caps x sinks."""

from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from itertools import product

import pytest
import torch

from builder import registry
from builder.components.kernel import Scoring
from builder.components.kernel.eager import weigh
from builder.model.mask import Mask
from builder.model.span import Span
from tests.components.kernel.loop import BIASES, MASKS, MORE_MASKS, SEGMENTS, gradients, problem

KERNELS = {name: registry.find("kernel", name) for name in registry.names("kernel")}
EXTRAS = list(product((None, 2.0), (False, True)))  # soft-cap, sinks
NARROW = [("causal", "none"), ("window", "none"), ("padding", "tensor"), ("a row of padding", "described")]


@cache
def right(name, bias, softcap, sinks):
    """What the loop gives, and its gradients."""
    given = problem(name, bias, softcap, sinks)
    out = given.loop()
    return out.detach(), gradients(out, given.leaves)


def computed(kernel, given, slopes=True):
    """What a kernel gives, and its gradients where it has any and they are asked for; None when it refuses."""
    if kernel.refuses(given.case):
        return None
    trains = slopes and kernel.refuses(replace(given.case, grad=True)) is None
    with nullcontext() if trains else torch.no_grad():
        q, k, v = (x if trains else x.detach() for x in (given.q, given.k, given.v))
        out = kernel.attend(q, k, v, given.scoring)
    return out, gradients(out, given.leaves) if trains else ()


def agree(found, expected, tolerance):
    (out, slopes), (right_out, right_slopes) = found, expected
    assert (out - right_out).abs().max() <= tolerance
    for slope, right_slope in zip(slopes, right_slopes, strict=False):
        assert slope.isfinite().all()
        assert (slope - right_slope).abs().max() <= 4 * tolerance * max(1.0, right_slope.abs().max().item())


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_equals_the_loop(kernel, name, bias):
    for softcap, sinks in EXTRAS:
        found = computed(KERNELS[kernel], problem(name, bias, softcap, sinks))
        if found is not None:
            agree(found, right(name, bias, softcap, sinks), 1e-12)


@pytest.mark.parametrize("name", MORE_MASKS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_further_masks(kernel, name):
    for bias, sinks in (("none", False), ("described", True)):
        agree(computed(KERNELS[kernel], problem(name, bias, None, sinks)), right(name, bias, None, sinks), 1e-12)


def test_what_is_refused_is_computed_by_another():
    for softcap, sinks, bias in product((None, 2.0), (False, True), BIASES):
        case = problem("causal", bias, softcap, sinks).case
        assert any(kernel.refuses(replace(case, grad=True)) is None for kernel in KERNELS.values())


@pytest.mark.parametrize("sinks", [False, True], ids=["plain", "sinks"])
@pytest.mark.parametrize(("name", "bias"), NARROW)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 3e-6), (torch.bfloat16, 4e-2)], ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_narrower_numbers(kernel, dtype, tolerance, name, bias, sinks):
    given = problem(name, bias, None, sinks, dtype=dtype)
    found = computed(KERNELS[kernel], given)
    assert found[0].dtype == dtype
    agree(found, right(name, bias, None, sinks), tolerance)


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_under_autocast(kernel, bias, softcap):
    """Projections give bfloat16 there; sinks and biases stay in float32."""
    given = problem("a row of padding", bias, softcap, True, dtype=torch.float32)
    given = replace(given, q=given.q.bfloat16(), k=given.k.bfloat16(), v=given.v.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        found = computed(KERNELS[kernel], given)
    if found is not None:
        assert found[0].dtype == torch.bfloat16
        agree(found, right("a row of padding", bias, softcap, True), 6e-2)


def test_the_reference_weighs_in_float32_under_autocast():
    given = problem("padding", softcap=2.0, dtype=torch.bfloat16)
    expected = weigh(given.q, given.k, given.scoring)
    with torch.autocast("cpu", torch.bfloat16):
        found = weigh(given.q, given.k, given.scoring)
    assert found.dtype == torch.float32 and torch.equal(found, expected)
    assert not torch.equal(expected, expected.bfloat16().float()), "rounding would be seen"


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("value", [3, 8, 12])
def test_every_number_of_kv_heads_and_width_of_a_value(kernel, kv_heads, value):
    given = problem("padding", kv_heads=kv_heads, value=value)
    expected = given.loop()
    out, slopes = computed(KERNELS[kernel], given)
    assert out.shape == (*given.q.shape[:3], value)
    agree((out, slopes), (expected.detach(), gradients(expected, given.leaves)), 1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("causal", {"mask": Mask(causal=False)}),
        ("window", {"mask": Mask(window=4)}),
        ("padding", {"mask": Mask()}),
        ("segments", {"mask": Mask(segments=SEGMENTS.roll(1, 1))}),
        ("chunk behind a state", {"mask": Mask(past=3)}),
        ("one query over a ring", {"mask": replace(MASKS["one query over a ring"][2], span=Span(3, 4))}),
        ("causal", {"scale": 0.5}),
        ("causal", {"sinks": torch.zeros(4)}),
        ("causal", {"bias": torch.arange(7.0).double().expand(1, 4, 7, 7)}),
    ],
    ids=str,
)
def test_another_scoring_is_seen(kernel, name, broken):
    given = problem(name)
    out, _ = computed(KERNELS[kernel], replace(given, scoring=replace(given.scoring, **broken)), slopes=False)
    assert (out - given.loop()).abs().max() > 1e-2


@torch.no_grad()
def test_a_cap_and_its_place_are_seen():
    given = problem("causal", "tensor", softcap=2.0)
    capped = replace(given, scoring=replace(given.scoring, softcap=None)).loop()
    assert (given.loop() - capped).abs().max() > 1e-2
    over_bias = given.scoring.softcap * torch.tanh(given.written / given.scoring.softcap)
    assert (given.loop() - replace(given, written=over_bias).loop()).abs().max() > 1e-2


@pytest.mark.parametrize("sinks", [False, True], ids=["plain", "sinks"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_scores_of_any_size_stay_finite(kernel, sinks):
    given = problem("padding", sinks=sinks, dtype=torch.float32)
    out, slopes = computed(KERNELS[kernel], replace(given, q=1e2 * given.q, k=1e2 * given.k))
    assert out.isfinite().all() and all(slope.isfinite().all() for slope in slopes)


@pytest.mark.parametrize("kernel", KERNELS)
def test_dropout_acts_on_the_weights_and_keeps_their_mean(kernel):
    if KERNELS[kernel].refuses(replace(problem("causal").case, dropout=True)):
        return
    q, k = torch.zeros(1, 1, 1, 8), torch.zeros(1, 4000, 1, 8)
    scoring = Scoring(Mask(causal=False), 1.0, dropout=0.25)
    out = KERNELS[kernel].attend(q, k, torch.ones_like(k), scoring)
    assert abs(out.mean().item() - 1.0) < 0.05 and out.mean() != 1.0
