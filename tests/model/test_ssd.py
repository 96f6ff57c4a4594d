"""State-space duality: chunks by matrix products against the recurrence as a loop over tokens, in float64."""

import pytest
import torch

from builder.model.ssd import ssd, ssd_flops

B, H, P, G, N = 2, 4, 3, 2, 5
LENGTHS = [1, 2, 3, 4, 5, 15, 16, 17, 31, 33, 64, 65]
CHUNKS = [1, 4, 16, 64]


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def inputs(length, groups=G):
    """x, decays, B, C and a state."""
    decay = -drawn(B, length, H, seed=1).exp()
    b, c = drawn(B, length, groups, N, seed=2), drawn(B, length, groups, N, seed=3)
    return drawn(B, length, H, P), decay, b, c, drawn(B, H, P, N, seed=4)


def by_loop(x, decay, b, c, initial, starts=None):
    h, ys = initial, []
    b, c = (v.repeat_interleave(H // v.shape[2], dim=2) for v in (b, c))  # (B, T, H, N)
    for t in range(x.shape[1]):
        if starts is not None:
            h = h * ~starts[:, t, None, None, None]
        h = decay[:, t].exp()[..., None, None] * h + x[:, t, :, :, None] * b[:, t, :, None]
        ys.append((h * c[:, t, :, None]).sum(-1))
    return torch.stack(ys, 1), h


def near(found, right, tolerance=1e-10):
    for ours, theirs in zip(found, right, strict=True):
        assert ours.shape == theirs.shape
        assert (ours - theirs).abs().max() <= tolerance * max(1.0, theirs.abs().max().item())


def gradients(function, told):
    leaves = [v.clone().requires_grad_() for v in told]
    weighed = [(out * torch.linspace(1, 2, out.numel()).view_as(out)).sum() for out in function(*leaves)]
    return torch.autograd.grad(sum(weighed), leaves)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("length", LENGTHS)
def test_it_is_the_recurrence(length, chunk, groups):
    told = inputs(length, groups)
    near(ssd(*told, chunk=chunk), by_loop(*told))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("length", [1, 3, 16, 19])
def test_its_gradients_are_those_through_the_recurrence(length, chunk, packed):
    told, starts = inputs(length), None
    if packed:
        starts = torch.rand(B, length, generator=torch.Generator().manual_seed(0)) < 0.3
    found = gradients(lambda *v: ssd(*v, starts, chunk), told)
    near(found, gradients(lambda *v: by_loop(*v, starts), told))


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("length", [3, 17, 65])
def test_nothing_passes_the_start_of_a_document(length, chunk):
    told = inputs(length)
    starts = torch.rand(B, length, generator=torch.Generator().manual_seed(0)) < 0.2
    starts[:, 2] = True
    near(ssd(*told, starts, chunk), by_loop(*told, starts))
    assert (ssd(*told, starts, chunk)[0] - ssd(*told, chunk=chunk)[0]).abs().max() > 1e-2


def test_steps_of_nothing_leave_the_state():
    x, decay, b, c, initial = inputs(9)
    x[:, 5:], decay[:, 5:] = 0, 0
    whole = ssd(x, decay, b, c, initial, chunk=4)[1]
    near([whole], [ssd(x[:, :5], decay[:, :5], b[:, :5], c[:, :5], initial)[1]], 1e-14)


def test_large_decays_stay_finite():
    x, decay, b, c, _ = (v.float() for v in inputs(65))
    leaves = [v.clone().requires_grad_() for v in (x, decay * 1e4, b, c)]
    y, _ = ssd(*leaves)
    y.sum().backward()
    assert y.isfinite().all()
    assert all(leaf.grad.isfinite().all() for leaf in leaves)


def test_autocast_leaves_it_alone():
    told = [v.float() for v in inputs(20)]
    with torch.autocast("cpu", torch.bfloat16):
        found = ssd(*told)
    for ours, right in zip(found, ssd(*told), strict=True):
        assert torch.equal(ours, right)


def test_flops_by_hand():
    """8 heads of 64, a group of 16, chunks of 64: 64 (16 + 512) a token within them, 2 x 512 x 16 through states."""
    assert ssd_flops(1024, 8, 64, 1, 16, 64) == 2 * 1024 * (64 * (16 + 512) + 2 * 512 * 16)
    assert ssd_flops(1000, 8, 64, 1, 16, 64) == ssd_flops(1024, 8, 64, 1, 16, 64)
    assert ssd_flops(10, 8, 64, 1, 16, 64) == 2 * 10 * (10 * (16 + 512) + 2 * 512 * 16)
