"""AdamW against the loop of the paper, the groups that decay, and the cosine schedule against its formula."""

import math

import pytest
import torch

from builder import build, registry
from builder.training.optimizer import decay_groups
from tests.tiny_run import spec_of

MODELS = {
    "tied": [],
    "untied": ["model.tie_embeddings=false"],
    "biases": ["model.ffn.bias=true", "model.head.bias=true", "model.tie_embeddings=false"],
    "layernorm": ["model/norm=layernorm"],
    "learned": ["model/position=learned"],
    "mlp": ["model/ffn=mlp", "model.ffn.d_ff=32"],
    "post_norm": ["model/block=post_norm"],
}


def component(room, name, **knobs):
    kind = registry.find((room,), name)
    return kind, kind.Config(**knobs)


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_every_parameter_is_in_one_group_and_only_matrices_decay(tmp_path, options):
    model = build(spec_of(tmp_path, *options).model, seed=0)
    groups = decay_groups(model, 0.1)
    members = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(members) == sorted(id(parameter) for parameter in model.parameters())  # a tied one comes once
    for group in groups:
        for parameter in group["params"]:
            assert group["weight_decay"] == (0.1 if parameter.ndim >= 2 else 0.0)
    assert {id(model.embedding.weight), id(model.head.weight)} <= set(members)


def test_what_is_not_trained_is_in_no_group(tmp_path):
    model = build(spec_of(tmp_path).model, seed=0)
    model.embedding.weight.requires_grad = False
    members = [id(parameter) for group in decay_groups(model, 0.1) for parameter in group["params"]]
    assert id(model.embedding.weight) not in members
    assert len(members) == len(list(model.parameters())) - 1


class Two(torch.nn.Module):
    """A matrix, which decays, and a vector, which doesn't."""

    def __init__(self):
        super().__init__()
        self.matrix, self.vector = (
            torch.nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in ((3, 2), 3)
        )


def test_adamw_is_the_loop_of_the_paper():
    lr, betas, eps, decay = 1e-2, (0.9, 0.95), 1e-8, 0.1
    kind, config = component("optimizer", "adamw", lr=lr, betas=betas, eps=eps, weight_decay=decay)
    model = Two()
    optimizer = kind.build(config, model)
    wanted = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    m = {name: torch.zeros_like(w) for name, w in wanted.items()}
    v = {name: torch.zeros_like(w) for name, w in wanted.items()}
    for t in range(1, 8):
        factor = 1 / t  # a schedule scales the decay too
        optimizer.param_groups[0]["lr"] = optimizer.param_groups[1]["lr"] = lr * factor
        for name, parameter in model.named_parameters():
            g = parameter.grad = torch.randn_like(parameter)
            m[name] = betas[0] * m[name] + (1 - betas[0]) * g
            v[name] = betas[1] * v[name] + (1 - betas[1]) * g * g
            m_hat, v_hat = m[name] / (1 - betas[0] ** t), v[name] / (1 - betas[1] ** t)
            shrink = decay * wanted[name] if name == "matrix" else 0.0
            wanted[name] = wanted[name] - lr * factor * (m_hat / (v_hat.sqrt() + eps) + shrink)
        optimizer.step()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), wanted[name], atol=1e-12, rtol=0)


@pytest.mark.parametrize(("steps", "warmup", "floor"), [(100, 10, 0.1), (100, 0, 0.1), (7, 3, 0.0), (50, 49, 1.0)])
def test_cosine_is_its_formula(steps, warmup, floor):
    kind, config = component("schedule", "cosine", warmup_steps=warmup, floor=floor)
    schedule = kind(config, steps)
    for step in range(steps):
        if step < warmup:
            wanted = (step + 1) / (warmup + 1)
        else:
            wanted = floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))
        assert schedule.factor(step) == pytest.approx(wanted, abs=1e-12)
    assert schedule.factor(warmup) == 1.0
    assert 0 < schedule.factor(0) <= 1
    assert schedule.factor(steps) == pytest.approx(floor)
    assert schedule.factor(steps + 5) == pytest.approx(floor)  # never up again


def test_cosine_without_warmup_starts_at_the_peak():
    kind, config = component("schedule", "cosine", warmup_steps=0)
    assert kind(config, 10).factor(0) == 1.0


def test_cosine_of_fewer_steps_than_the_warmup_only_rises():
    kind, config = component("schedule", "cosine", warmup_steps=10)
    factors = [kind(config, 4).factor(step) for step in range(4)]
    assert factors == pytest.approx([1 / 11, 2 / 11, 3 / 11, 4 / 11])
