"""Schedule-free AdamW against the loop of the paper, its point of deployment, and what it doesn't go with."""

import math
import sys

import pytest
import torch

from builder import build, registry
from builder.errors import ConfigError
from builder.training.fit import rehearse
from tests.tiny_run import checkpoint, same, spec_of, trained

FREE = ["optimizer=schedule_free", "schedule=constant"]
KIND = registry.find("optimizer", "schedule_free")


class Two(torch.nn.Module):
    """A matrix, which decays, and a vector, which doesn't."""

    def __init__(self):
        super().__init__()
        self.matrix, self.vector = (
            torch.nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in ((3, 2), 3)
        )


def made(model, **knobs):
    """(the optimizer, what it deploys by name)."""
    optimizer = KIND.build(KIND.Config(**knobs), model)
    deployed = KIND.deployed(optimizer)

    def named():
        found = deployed()
        return {name: found[parameter] for name, parameter in model.named_parameters()}

    return optimizer, named


def weights(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def step(model, optimizer):
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()


def refused(spec):
    return [problem.path for problem in KIND.refuses(spec, build(spec.model, device="meta"))]


# the loop


@pytest.mark.parametrize("warmup", [0, 4])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.98, 0.95)])
def test_it_is_the_loop_of_the_paper(tmp_path, betas, warmup):
    """Algorithm 1 of Defazio et al. (2024), x, y and z written out, one number after the other; with the warm-up of
    our schedule and, as in the library, the bias of v corrected in v itself."""
    lr, eps, decay, (beta1, beta2) = 0.02, 1e-8, 0.3, betas
    model = Two()
    optimizer, deployed = made(model, lr=lr, betas=betas, eps=eps, weight_decay=decay)
    spec = spec_of(tmp_path, *FREE, f"schedule.warmup_steps={warmup}")
    factor = spec.schedule.component(spec.schedule, 12).factor
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    x = {name: weight.flatten().tolist() for name, weight in weights(model).items()}
    z, v, squares = {name: list(w) for name, w in x.items()}, {name: [0.0] * len(w) for name, w in x.items()}, 0.0
    for t in range(1, 12):
        gamma = lr * factor(t - 1)
        squares += gamma**2
        c = gamma**2 / squares
        y = {name: [(1 - beta1) * b + beta1 * a for a, b in zip(x[name], z[name], strict=True)] for name in x}
        for name, parameter in model.named_parameters():
            assert parameter.flatten().tolist() == pytest.approx(y[name], abs=1e-12, rel=0)
            parameter.grad = torch.randn_like(parameter)
            for i, g in enumerate(parameter.grad.flatten().tolist()):
                v[name][i] = beta2 * v[name][i] + (1 - beta2) * g * g
                move = g / (math.sqrt(v[name][i] / (1 - beta2**t)) + eps)
                z[name][i] -= gamma * (move + (decay * y[name][i] if name == "matrix" else 0.0))
                x[name][i] = (1 - c) * x[name][i] + c * z[name][i]
        optimizer.step()
        scheduler.step()
        for name, parameter in model.named_parameters():
            assert deployed()[name].flatten().tolist() == pytest.approx(x[name], abs=1e-12, rel=0)
            assert optimizer.state[parameter]["z"].flatten().tolist() == pytest.approx(z[name], abs=1e-12, rel=0)


def test_what_is_deployed_is_the_mean_of_where_z_was():
    """At a constant rate every step weighs as much."""
    model = Two()
    optimizer, deployed = made(model)
    past = []
    for _ in range(9):
        step(model, optimizer)
        past.append({name: optimizer.state[p]["z"].clone() for name, p in model.named_parameters()})
    for name, found in deployed().items():
        torch.testing.assert_close(found, torch.stack([z[name] for z in past]).mean(0), atol=1e-12, rtol=0)
        assert not torch.allclose(found, weights(model)[name])


def test_it_deploys_what_the_library_evaluates():
    model = Two()
    optimizer, deployed = made(model, betas=(0.95, 0.99))
    for _ in range(6):
        step(model, optimizer)
    ours = deployed()
    optimizer.eval()
    assert same(weights(model), ours)


def test_looking_moves_nothing_where_the_library_would_round():
    model = torch.nn.Sequential(torch.nn.Linear(40, 40))
    optimizer, deployed = made(model)
    for _ in range(6):
        step(model, optimizer)
    before = weights(model)
    deployed()
    assert same(weights(model), before)
    optimizer.eval()
    optimizer.train()
    assert not same(weights(model), before)


def test_what_has_not_moved_is_deployed_as_it_is():
    model = Two()
    optimizer = KIND.build(KIND.Config(), model)
    assert KIND.deployed(optimizer)() == {}
    model.matrix.grad = torch.ones_like(model.matrix)
    optimizer.step()
    assert [parameter is model.matrix for parameter in KIND.deployed(optimizer)()] == [True]


def test_it_needs_some_momentum_to_find_the_average_by():
    with pytest.raises(ValueError, match="betas"):
        KIND.Config(betas=(0.0, 0.99))
    assert KIND.Config(betas=(0.5, 0.0)).betas == (0.5, 0.0)


# what it doesn't go with


@pytest.mark.parametrize("schedule", ["cosine", "linear", "wsd", "inverse_sqrt"])
def test_a_schedule_that_falls_is_refused(tmp_path, schedule):
    assert refused(spec_of(tmp_path, FREE[0], f"schedule={schedule}")) == ["schedule"]


def test_one_that_only_rises_is_not(tmp_path):
    assert not refused(spec_of(tmp_path, *FREE))
    assert not refused(spec_of(tmp_path, FREE[0], "schedule=linear", "schedule.floor=1.0"))
    assert not refused(spec_of(tmp_path, FREE[0], "schedule=cosine", "schedule.warmup_steps=100")), "it never fell"


def test_another_average_is_refused(tmp_path):
    assert refused(spec_of(tmp_path, *FREE, "ema.decay=0.99")) == ["ema"]


def test_without_the_library_it_says_what_to_install(tmp_path, monkeypatch):
    spec = spec_of(tmp_path, *FREE)
    monkeypatch.setitem(sys.modules, "schedulefree", None)
    assert refused(spec) == ["optimizer.name"]
    with pytest.raises(ConfigError, match="pip install schedulefree"):
        KIND.build(spec.optimizer, build(spec.model, seed=0))


@pytest.mark.parametrize("options", [[], ["schedule=constant", "ema.decay=0.9"]], ids=["cosine", "ema"])
def test_a_run_is_told_so_before_anything_is_written(tmp_path, options):
    with pytest.raises(ConfigError, match="1 problem in"):
        trained(tmp_path, "optimizer=schedule_free", *options)
    assert not list(tmp_path.glob("out/**/*"))
    rehearse(spec_of(tmp_path, *FREE))


# a run


def test_a_run_keeps_what_it_trained_and_what_is_deployed(tmp_path):
    found = checkpoint(trained(tmp_path, *FREE).path)
    spec = spec_of(tmp_path, *FREE)
    model = build(spec.model, seed=1)
    model.load_state_dict(found["state_dict"])
    optimizer = KIND.build(spec.optimizer, model)
    optimizer.load_state_dict(found["optimizer_states"][0])
    optimizer.eval()
    wanted = {name: weight.detach() for name, weight in model.named_parameters(remove_duplicate=False)}
    assert same(found["averaged"], wanted)
    assert not same(found["averaged"]["embedding.weight"], found["state_dict"]["embedding.weight"])
