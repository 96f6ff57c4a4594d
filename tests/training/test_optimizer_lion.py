"""Lion against the loop of the paper."""

import math

import pytest
import torch

from builder import registry


def lion(model, **knobs):
    kind = registry.find("optimizer", "lion")
    return kind.build(kind.Config(**knobs), model)


class Three(torch.nn.Module):
    """Two matrices, which decay, and a vector, which doesn't."""

    def __init__(self):
        super().__init__()
        shapes = {"one": (3, 2), "other": (2, 4), "vector": (3,)}
        for name, shape in shapes.items():
            self.register_parameter(name, torch.nn.Parameter(torch.randn(shape, dtype=torch.float64)))


def sign(number: float) -> float:
    return math.copysign(1.0, number) if number else 0.0


@pytest.mark.parametrize("betas", [(0.9, 0.99), (0.95, 0.98)])
def test_lion_is_the_loop_of_the_paper(betas):
    """Algorithm 2 of Chen et al. (2023), one number after the other."""
    lr, decay, (beta1, beta2) = 1e-2, 0.3, betas
    model = Three()
    optimizer = lion(model, lr=lr, betas=betas, weight_decay=decay)
    theta = {name: parameter.detach().flatten().tolist() for name, parameter in model.named_parameters()}
    m = {name: [0.0] * len(numbers) for name, numbers in theta.items()}
    for t in range(1, 12):
        eta = lr / t
        for group in optimizer.param_groups:
            group["lr"] = eta
        for name, parameter in model.named_parameters():
            parameter.grad = torch.randn_like(parameter) * (torch.rand_like(parameter) > 0.3)  # some exactly 0
            shrink = 0.0 if name == "vector" else decay
            for i, g in enumerate(parameter.grad.flatten().tolist()):
                c = beta1 * m[name][i] + (1 - beta1) * g
                theta[name][i] -= eta * (sign(c) + shrink * theta[name][i])
                m[name][i] = beta2 * m[name][i] + (1 - beta2) * g
        optimizer.step()
        for name, parameter in model.named_parameters():
            assert parameter.flatten().tolist() == pytest.approx(theta[name], abs=1e-12, rel=0)
            assert optimizer.state[parameter]["momentum"].flatten().tolist() == pytest.approx(m[name], abs=1e-12, rel=0)


def test_its_betas_are_not_to_be_swapped():
    ends = []
    for betas in ((0.9, 0.99), (0.99, 0.9)):
        torch.manual_seed(0)
        model = Three()
        optimizer = lion(model, betas=betas)
        for _ in range(20):
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
            optimizer.step()
        ends.append(model.one.detach())
    assert not torch.allclose(*ends)


def test_it_remembers_one_number_for_each():
    model = Three()
    optimizer = lion(model)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    for parameter in model.parameters():
        assert sum(kept.numel() for kept in optimizer.state[parameter].values()) == parameter.numel()
