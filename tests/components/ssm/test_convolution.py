"""The causal convolution of each channel: against torch's own, its gradients, and documents that are apart."""

import pytest
import torch
import torch.nn.functional as F

from builder.components.ssm import Convolution
from builder.model.compact import Compact

C = 5


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def inputs(length, width):
    return drawn(2, length, C, seed=1), drawn(2, width - 1, C, seed=2), drawn(C, width, seed=3), drawn(C, seed=4)


def ours(x, before, weight, bias, starts=None):
    made = Convolution(C, weight.shape[1], bias=True).double()
    told = {"weight": weight, "bias": bias}
    return torch.func.functional_call(made, told, (x, Compact(starts=starts), before))


def by_torch(x, before, weight, bias):
    together = torch.cat((before, x), dim=1).transpose(1, 2)
    return F.conv1d(together, weight[:, None], bias, groups=C).transpose(1, 2)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_it_is_torchs(length, width):
    found, leaves = [], [v.requires_grad_() for v in inputs(length, width)]
    for function in (ours, by_torch):
        out = function(*leaves)
        found.append((out, *torch.autograd.grad((out * drawn(*out.shape, seed=5)).sum(), leaves)))
    for one, other in zip(*found, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() <= 1e-12 if one.numel() else True


def test_documents_are_apart():
    x, before, weight, bias = inputs(9, 4)
    starts = torch.zeros(2, 9, dtype=torch.bool)
    starts[0, [0, 2, 3, 7]] = starts[1, [0, 6]] = True
    found = ours(x, before, weight, bias, starts)
    for row in range(2):
        for document in starts[row].cumsum(0).unique():
            here = starts[row].cumsum(0) == document
            alone = by_torch(x[row : row + 1, here], torch.zeros_like(before[:1]), weight, bias)
            assert (found[row, here] - alone[0]).abs().max() <= 1e-12
    assert (found - by_torch(x, before, weight, bias)).abs().max() > 1e-2
