"""Gated products and their activations: gradients are those of autograd, and two tensors are kept in place of three."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from builder.model.activations import ACTIVATIONS, Curve, gated

OTHER = {"silu": "gelu"}


def pair(*shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)
    return [
        torch.randn(*shape, generator=generator, dtype=torch.float64).mul(2).to(dtype).requires_grad_() for _ in "gv"
    ]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients_are_those_of_the_written_out_product(name):
    """By autograd through the function alone; another function's are told apart."""
    gate, values = pair(3, 5, 8)
    dy = torch.randn_like(values)
    given = [tensor.detach().clone() for tensor in (gate, values, dy)]
    by_autograd = torch.autograd.grad(ACTIVATIONS[name].value(gate) * values, (gate, values), dy)
    ours = torch.autograd.grad(gated(ACTIVATIONS[name], gate, values), (gate, values), dy)
    for found, right in zip(ours, by_autograd, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-14)
    assert all(map(torch.equal, (gate, values, dy), given)), "nothing that was given is written over"
    wrong = ACTIVATIONS[OTHER.get(name, "silu")].value(gate) * values
    assert (ours[0] - torch.autograd.grad(wrong, gate, dy)[0]).abs().max() > 1e-2


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_curve_without_a_kernel_of_its_own_goes_back_the_same(name):
    gate, values = pair(4, 6)
    alone = Curve(ACTIVATIONS[name].value)
    dy = torch.randn_like(values)
    by_kernel, by_autograd = (
        torch.autograd.grad(gated(curve, gate, values), gate, dy)[0] for curve in (ACTIVATIONS[name], alone)
    )
    torch.testing.assert_close(by_kernel, by_autograd, rtol=1e-12, atol=1e-14)


def kept(make):
    """The bytes that autograd keeps of what `make` computes, and what it computes."""
    held = {}

    def hold(tensor):
        held[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with saved_tensors_hooks(hold, lambda tensor: tensor):
        made = make()
    return sum(held.values()), made


def test_two_tensors_are_kept_where_autograd_keeps_three():
    gate, values = pair(3, 8)
    bytes_, _product = kept(lambda: gated(ACTIVATIONS["silu"], gate, values))
    plain, _other = kept(lambda: ACTIVATIONS["silu"](gate) * values)
    assert bytes_ == 2 * gate.nbytes and plain == 3 * gate.nbytes


@pytest.mark.parametrize("frozen", [0, 1])
def test_what_is_frozen_gets_no_gradient(frozen):
    both = pair(3, 8)
    both[frozen].requires_grad_(False)
    gated(ACTIVATIONS["silu"], *both).sum().backward()
    assert both[frozen].grad is None and both[1 - frozen].grad is not None


def test_unlike_dtypes_are_promoted_as_in_a_product():
    gate, values = pair(3, 8, dtype=torch.bfloat16)[0], pair(3, 8, dtype=torch.float32)[1]
    out = gated(ACTIVATIONS["silu"], gate, values)
    assert out.dtype == torch.float32 and torch.equal(out, torch.nn.functional.silu(gate) * values)
    out.sum().backward()
    assert gate.grad is not None and gate.grad.dtype == torch.bfloat16


def test_a_gate_that_is_part_of_something_wider_is_taken_where_it_lies():
    both = torch.randn(2, 3, 8, dtype=torch.float64, requires_grad=True)
    gate, values = both.chunk(2, dim=-1)
    found = torch.autograd.grad(gated(ACTIVATIONS["silu"], gate, values).square().sum(), both)[0]
    right = torch.autograd.grad((torch.nn.functional.silu(gate) * values).square().sum(), both)[0]
    torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-14)
