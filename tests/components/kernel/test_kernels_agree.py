"""Every kernel against a float64 loop over heads, queries and visible keys, forward and gradients."""

import math

import pytest
import torch

from builder import registry
from builder.model.mask import Mask

KERNELS = registry.names("kernel")
TOLERANCES = {torch.float64: 1e-12, torch.float32: 3e-6, torch.bfloat16: 4e-2}
B, H, K, E = 2, 4, 2, 8
PADS = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 0, 1, 1]], dtype=torch.bool)
NOBODY = torch.stack((PADS[0], torch.zeros(9, dtype=torch.bool)))
SEGMENTS = torch.tensor([[0, 0, 0, 1, 1, 1, 2, 2, 2], [5, 5, 5, 5, 5, 5, 5, 9, 9]])
# name: (queries, keys, mask, with a bias)
CASES = {
    "causal": (9, 9, Mask(), False),
    "both ways": (9, 9, Mask(causal=False), False),
    "more keys than queries": (4, 9, Mask(causal=False), False),
    "window": (9, 9, Mask(window=3), False),
    "window over all": (9, 9, Mask(window=9), False),
    "padding": (9, 9, Mask(real=PADS), False),
    "a row of padding": (9, 9, Mask(real=NOBODY), False),
    "a row of padding, bias": (9, 9, Mask(real=NOBODY), True),
    "segments": (9, 9, Mask(segments=SEGMENTS), False),
    "segments, padding, window": (9, 9, Mask(segments=SEGMENTS, real=PADS, window=2), False),
    "chunk behind a state": (4, 9, Mask(past=5), False),
    "chunk, window, padding": (4, 9, Mask(past=5, window=4, real=PADS), False),
    "one query": (1, 9, Mask(past=8), False),
    "one query, window": (1, 9, Mask(past=8, window=3), False),
    "bias": (9, 9, Mask(), True),
    "bias, both ways": (9, 9, Mask(causal=False), True),
    "bias, one query": (1, 9, Mask(past=8), True),
    "bias, padding, window": (9, 9, Mask(window=4, real=PADS), True),
}


def sees(mask, b, query, key):
    """The predicate of chapter 3.3, by words."""
    query += mask.past
    return (
        (not mask.causal or key <= query)
        and (mask.window is None or key > query - mask.window)
        and (mask.real is None or bool(mask.real[b, key]))
        and (mask.segments is None or bool(mask.segments[b, key] == mask.segments[b, query]))
    )


def by_loop(q, k, v, mask, bias, scale):
    """softmax over the visible keys, a query at a time; differentiable."""
    rows = []
    for b in range(q.shape[0]):
        for t in range(q.shape[1]):
            for h in range(q.shape[2]):
                group = h // (q.shape[2] // k.shape[2])
                seen = [s for s in range(k.shape[1]) if sees(mask, b, t, s)]
                if not seen:
                    rows.append(torch.zeros_like(v[0, 0, 0]))
                    continue
                scores = k[b, seen, group] @ q[b, t, h] * scale
                if bias is not None:
                    scores = scores + bias[b % bias.shape[0], h, t, seen]
                weights = (scores - scores.max()).exp()
                rows.append((weights / weights.sum()) @ v[b, seen, group])
    return torch.stack(rows).view(*q.shape[:3], v.shape[-1])


def inputs(case, dtype, kv_heads=K):
    queries, keys, mask, biased = CASES[case]
    shapes = ((B, queries, H, E), (B, keys, kv_heads, E), (B, keys, kv_heads, E))
    q, k, v = (torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes)
    return q, k, v, mask, torch.randn(1, H, queries, keys, dtype=torch.float64).to(dtype) if biased else None


def gradients(out, tensors):
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return torch.autograd.grad((out.double() * weights).sum(), tensors)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES.items(), ids=str)
def test_a_kernel_equals_the_loop(kernel, case, dtype, tolerance):
    q, k, v, mask, bias = inputs(case, dtype)
    out = registry.find("kernel", kernel).attend(q, k, v, mask, bias, E**-0.5, 0.0)
    assert out.dtype == dtype and out.shape == q.shape
    doubles = [tensor.detach().double().requires_grad_() for tensor in (q, k, v)]
    expected = by_loop(*doubles, mask, None if bias is None else bias.double(), E**-0.5)
    assert (out - expected).abs().max() <= tolerance
    for found, right in zip(gradients(out, (q, k, v)), gradients(expected, doubles), strict=True):
        assert found.isfinite().all()
        assert (found - right).abs().max() <= 4 * tolerance * max(1.0, right.abs().max().item())


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_every_number_of_kv_heads(kernel, kv_heads):
    q, k, v, mask, bias = inputs("padding", torch.float64, kv_heads)
    out = registry.find("kernel", kernel).attend(q, k, v, mask, bias, 0.3, 0.0)
    assert torch.allclose(out, by_loop(q, k, v, mask, bias, 0.3), atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("case", "broken"),
    [
        ("causal", Mask(causal=False)),
        ("window", Mask(window=4)),
        ("padding", Mask()),
        ("segments", Mask(segments=SEGMENTS.roll(1, 1))),
        ("chunk behind a state", Mask(past=4)),
    ],
)
def test_another_mask_is_seen(kernel, case, broken):
    q, k, v, mask, bias = inputs(case, torch.float64)
    out = registry.find("kernel", kernel).attend(q, k, v, broken, bias, E**-0.5, 0.0)
    assert (out - by_loop(q, k, v, mask, bias, E**-0.5)).abs().max() > 1e-2


@pytest.mark.parametrize("kernel", KERNELS)
def test_scores_of_any_size_stay_finite(kernel):
    q, k, v, mask, bias = inputs("padding", torch.float32)
    out = registry.find("kernel", kernel).attend(1e2 * q, 1e2 * k, v, mask, bias, 1.0, 0.0)
    assert out.isfinite().all() and all(grad.isfinite().all() for grad in gradients(out, (q, k, v)))


@pytest.mark.parametrize("width", [4, 16, 64, 256])
def test_the_scale_keeps_the_variance_of_a_score_at_one(site, config, width):
    attention = config("attention", "gqa", n_heads=2, d_head=width)
    scale = attention.component(attention, site()).scale
    q, k = torch.randn(2, 20_000, width, dtype=torch.float64)
    variance = ((q * k).sum(-1) * scale).var().item()
    assert math.isclose(variance, 1.0, abs_tol=0.1)
    assert math.isclose((q * k).sum(-1).var().item(), width, rel_tol=0.1)


@pytest.mark.parametrize("kernel", KERNELS)
def test_dropout_acts_on_the_weights_and_keeps_their_mean(kernel):
    q, k = torch.zeros(1, 1, 1, E), torch.zeros(1, 4000, 1, E)
    out = registry.find("kernel", kernel).attend(q, k, torch.ones_like(k), Mask(causal=False), None, 1.0, 0.25)
    assert abs(out.mean().item() - 1.0) < 0.05 and out.mean() != 1.0
