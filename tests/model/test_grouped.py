"""Grouped maps against a loop over rows, on each way that there is to compute them."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from builder.checklist.probes.costs import Counter
from builder.model import grouped
from builder.model.grouped import Apart, GroupedLinear, Groups, grouped_linear, per_group
from builder.model.linear import Linear

IN, OUT = 8, 16
SIZES = {
    "uneven": [3, 1, 4, 2],
    "an empty group": [3, 0, 5, 0],
    "all in one": [0, 9, 0, 0],
    "one row": [0, 0, 0, 1],
    "no row": [0, 0, 0, 0],
    "one group": [5],
    "many": [40, 1, 0, 23],
}


@pytest.fixture(params=["each group", "blocks", "own kernel"])
def way(request, monkeypatch):
    """Computes every grouped product of a test in one of the three ways; what its numbers are close to."""
    if request.param != "each group":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    if request.param == "own kernel":  # which knows no float64 on a CPU
        monkeypatch.setattr(grouped, "_own_kernel", lambda x, weight: True)
        return torch.float32, 1e-5
    return torch.float64, 1e-12


def divided(sizes):
    groups = Groups(len(sizes))
    groups.divide(torch.tensor(sizes))
    return groups


def drawn(sizes, beyond=0, dtype=torch.float64):
    """x, weight and bias for rows divided like this, and so many more that belong to nobody."""
    shapes = (sum(sizes) + beyond, IN), (len(sizes), OUT, IN), (len(sizes), OUT)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def by_row(x, weight, bias, sizes):
    owner = [group for group, size in enumerate(sizes) for _ in range(size)]
    rows = [weight[g] @ x[m] + (0 if bias is None else bias[g]) for m, g in enumerate(owner)]
    nobody = 0 * (x[:, :1] @ weight[0, None, :, 0])  # (M, out)
    return torch.cat([nobody[:0], *[row[None] for row in rows], nobody[len(rows) :]])


@pytest.mark.parametrize("beyond", [0, 3])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_equals_the_loop(way, sizes, biased, beyond):
    dtype, tolerance = way
    x, weight, bias = drawn(sizes, beyond, dtype)
    held = [x, weight, bias] if biased else [x, weight]
    y, expected = (f(x, weight, bias if biased else None, told) for f, told in
                   ((grouped_linear, divided(sizes)), (by_row, sizes)))  # fmt: skip
    assert y.shape == expected.shape and torch.allclose(y, expected, rtol=0, atol=tolerance)
    assert (y[sum(sizes) :] == 0).all()
    upstream = torch.randn_like(y)
    found = torch.autograd.grad(y, held, upstream)
    wanted = torch.autograd.grad(expected, held, upstream, allow_unused=True)
    for gradient, other in zip(found, wanted, strict=True):
        assert torch.allclose(gradient, torch.zeros_like(gradient) if other is None else other, atol=10 * tolerance)


@pytest.mark.parametrize("beyond", [0, 2])
def test_gradients_are_those_of_differences(monkeypatch, beyond):
    sizes = [2, 0, 3]
    held = drawn(sizes, beyond)
    for compiling in (False, True):
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda told=compiling: told)
        assert torch.autograd.gradcheck(lambda *held: grouped_linear(*held, divided(sizes)), held)


def test_the_own_kernel_in_bfloat16(monkeypatch):
    monkeypatch.setattr(grouped, "_own_kernel", lambda x, weight: True)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    sizes = [5, 0, 9, 2]
    x, weight, bias = drawn(sizes, 4)
    narrow = [tensor.detach().bfloat16().requires_grad_() for tensor in (x, weight, bias)]
    y, expected = grouped_linear(*narrow, divided(sizes)), by_row(*(tensor.double() for tensor in narrow), sizes)
    assert y.dtype == torch.bfloat16 and (y - expected).abs().max() <= 0.02 * expected.abs().max()
    found, wanted = (
        torch.autograd.grad(out.double().square().sum(), narrow, retain_graph=True) for out in (y, expected)
    )
    for gradient, other in zip(found, wanted, strict=True):
        assert (gradient - other).abs().max() <= 0.02 * other.abs().max()


class Careless(torch.autograd.Function):
    """What torch's kernel may do: behind the last group both its output and its gradient are anything."""

    @staticmethod
    def forward(ctx, x, weight, ends):
        ctx.save_for_backward(x, weight, ends)
        y = torch.full((len(x), weight.shape[-1]), torch.nan, dtype=x.dtype)
        for group, rows in Careless.spans(ends):
            y[rows] = x[rows] @ weight[group]
        return y

    @staticmethod
    def backward(ctx, grad):
        x, weight, ends = ctx.saved_tensors
        dx, dw = torch.full_like(x, torch.nan), torch.zeros_like(weight)
        for group, rows in Careless.spans(ends):
            dx[rows], dw[group] = grad[rows] @ weight[group].T, x[rows].T @ grad[rows]
        return dx, dw, None

    @staticmethod
    def spans(ends):
        return [(group, slice(*rows)) for group, rows in enumerate(pairwise([0, *ends.tolist()]))]


def test_what_a_kernel_leaves_behind_the_last_group_reaches_nobody(monkeypatch):
    monkeypatch.setattr(grouped, "_own_kernel", lambda x, weight: True)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    monkeypatch.setattr(grouped.F, "grouped_mm", lambda x, weight, offs: Careless.apply(x, weight, offs))
    sizes = [3, 0, 2]
    x, weight, bias = drawn(sizes, 3)
    y, expected = grouped_linear(x, weight, bias, divided(sizes)), by_row(x, weight, bias, sizes)
    assert torch.allclose(y, expected)
    found, wanted = (torch.autograd.grad(out.sum(), [x, weight, bias]) for out in (y, expected))
    assert all(torch.allclose(gradient, other) for gradient, other in zip(found, wanted, strict=True))


@pytest.mark.parametrize("sizes", [[64, 0, 0, 0], [16, 16, 16, 16], [1, 2, 3, 58]], ids=str)
def test_blocks_multiply_at_most_a_quarter_more(monkeypatch, sizes):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    x, weight, _ = drawn(sizes)
    with Counter() as counter, torch.no_grad():
        grouped_linear(x, weight, None, divided(sizes))
    assert 1 <= counter.total / (2 * 64 * IN * OUT) <= 1.25


def test_a_row_of_another_group_is_seen(way):
    dtype, _ = way
    x, weight, bias = drawn([3, 5], dtype=dtype)
    assert (grouped_linear(x, weight, bias, divided([4, 4])) - by_row(x, weight, bias, [3, 5])).abs().max() > 1e-2


class Gated(nn.Module):
    def __init__(self, norm=False):
        super().__init__()
        self.up, self.down = Linear(IN, OUT, bias=True), Linear(OUT, IN, role="residual")
        self.norm = nn.LayerNorm(OUT) if norm else nn.Identity()

    def forward(self, x):
        return self.down(self.norm(self.up(x)).relu())


def test_every_linear_map_of_a_module_is_held_for_each_group():
    module, groups = per_group(Gated, 3)
    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    assert shapes == {"up.weight": (3, OUT, IN), "up.bias": (3, OUT), "down.weight": (3, IN, OUT)}
    assert module.up.roles["weight"] == "matrix" and module.down.roles["weight"] == "residual"
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(5, IN)
    for sizes in ([2, 0, 3], [1, 4, 0]):  # it may be divided anew
        groups.divide(torch.tensor(sizes))
        hidden = by_row(x, module.up.weight, module.up.bias, sizes).relu()
        assert torch.allclose(module(x), by_row(hidden, module.down.weight, None, sizes), atol=1e-5)


def test_what_has_parameters_beside_its_linear_maps_is_held_apart():
    module, groups = per_group(lambda: Gated(norm=True), 3)
    assert isinstance(module, Apart) and "2.norm.weight" in dict(module.named_parameters())
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(7, IN, requires_grad=True)
    for sizes in ([2, 0, 3], [0, 0, 0], [1, 4, 2]):
        groups.divide(torch.tensor(sizes))
        owner = [group for group, size in enumerate(sizes) for _ in range(size)]
        own = [module[group](x[at : at + 1]) for at, group in enumerate(owner)]
        expected = torch.cat([*own, torch.zeros(7 - len(owner), IN)])
        assert torch.allclose(module(x), expected, atol=1e-5)
        (gradient,) = torch.autograd.grad(module(x).sum() + 0 * x.sum(), x)
        assert not gradient[len(owner) :].any()


def test_rows_that_are_not_divided_are_refused():
    module, _ = per_group(Gated, 3)
    with pytest.raises(RuntimeError, match="before its rows were divided"):
        module(torch.randn(5, IN))


def test_autocast_reaches_a_grouped_map():
    groups = divided([2, 3])
    module = GroupedLinear(Linear(IN, OUT, bias=True), groups)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(5, IN)
    assert module(x).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        y = module(x)
    assert y.dtype == torch.bfloat16 and (y - module(x)).abs().max() <= 0.05 * module(x).abs().max()
    (gradient,) = torch.autograd.grad(y.float().sum(), module.weight)
    assert gradient.dtype == torch.float32 and gradient.isfinite().all()
