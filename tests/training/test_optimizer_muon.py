"""Muon against torch's own and a loop in float64, matrix by matrix and expert by expert; and what goes by it."""

import re

import pytest
import torch

from builder import build, compose, load, registry
from builder.model.linear import Linear
from builder.training.optimizer import muon as module
from builder.training.optimizer.muon import orthogonal
from tests.choices import SIZES
from tests.tiny_run import spec_of

MOE = ["model/ffn=moe", *SIZES, "model.ffn.n_experts=4", "model.ffn.expert.d_ff=24", "model.n_layers=2"]
ORIGINAL = {"scale": "original", "adamw_lr": 1e-3}
KNOBS = {
    "match": {},
    "original": ORIGINAL,
    "plain momentum": {"nesterov": False},
    "none": {"momentum": 0.0},
    "more": {"ns_steps": 7, "momentum": 0.8},
}


def muon(model, **knobs):
    kind = registry.find("optimizer", "muon")
    return kind.build(kind.Config(**knobs), model)


def theirs(parameters, lr, weight_decay, *, scale="match_rms_adamw", adamw_lr=None, **knobs):
    return torch.optim.Muon(parameters, lr=lr, weight_decay=weight_decay, adjust_lr_fn=scale, **knobs)


class Maps(torch.nn.Module):
    """Linear maps of three shapes, two of one; with `experts`, three tall and three wide ones in one tensor each."""

    def __init__(self, experts: bool = False, dtype: torch.dtype = torch.float32):
        super().__init__()
        shapes = [(8, 24), (24, 8), (24, 8), (16, 16)]
        self.maps = torch.nn.ModuleList(Linear(d_in, d_out) for d_out, d_in in shapes)
        self.stacks = torch.nn.ModuleList()
        for shape in [(3, 24, 8), (3, 8, 24)] if experts else []:
            stack = torch.nn.Module()
            stack.weight, stack.roles = torch.nn.Parameter(torch.empty(shape)), {"weight": "matrix"}
            self.stacks.append(stack)
        generator = torch.Generator().manual_seed(0)
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter, generator=generator)
        self.to(dtype)


def gradients(parameters, seed):
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)


# the products


def by_hand(matrix, steps):
    """Newton-Schulz as Jordan writes it, in float64, of one matrix."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.double()
    x = x / max((x * x).sum().sqrt().item(), 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


@pytest.mark.parametrize("steps", [1, 5, 8])
@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4), (1, 7), (7, 1), (3, 5, 4), (2, 3, 4, 5)])
def test_it_is_the_iteration_in_float64(shape, steps):
    matrices = torch.randn(shape, dtype=torch.float64) * 50
    found = orthogonal(matrices, steps)
    assert found.shape == matrices.shape
    flat = zip(found.reshape(-1, *shape[-2:]), matrices.reshape(-1, *shape[-2:]), strict=True)
    for one, matrix in flat:
        torch.testing.assert_close(one, by_hand(matrix, steps), atol=1e-10, rtol=0)


@pytest.mark.parametrize("shape", [(32, 32), (16, 64), (64, 16)])
def test_singular_values_come_near_1_and_their_vectors_stay(shape):
    """Jordan et al. (2024) let them end within 0.3 of 1; those below 0.01 of the norm take more than five steps."""
    u, _, vh = torch.linalg.svd(torch.randn(shape, dtype=torch.float64), full_matrices=False)
    matrix = u @ torch.diag(torch.linspace(0.1, 1.0, min(shape), dtype=torch.float64)) @ vh
    rotated = u.T @ orthogonal(matrix, 5) @ vh.T
    values = rotated.diagonal()
    assert (values - 1).abs().max() < 0.35
    torch.testing.assert_close(rotated, torch.diag(values), atol=1e-9, rtol=0)
    assert (torch.linalg.svdvals(matrix) - 1).abs().max() > 0.8  # which it wasn't


def test_zeros_stay_zeros_and_one_matrix_does_not_look_at_another():
    matrices = torch.randn(3, 4, 6)
    matrices[1] = 0
    matrices[2] *= 1e6
    found = orthogonal(matrices, 5)
    assert (found[1] == 0).all()
    torch.testing.assert_close(found[0], orthogonal(matrices[0], 5), atol=1e-5, rtol=0)


# the steps


@pytest.fixture
def in_float32(monkeypatch):
    """Has torch's Muon iterate in float32, where it would round to bfloat16: as we do on a CPU."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda tensor: tensor.clone())  # it divides in place


@pytest.mark.parametrize("knobs", KNOBS.values(), ids=KNOBS)
def test_matrices_move_as_torch_moves_them(knobs, in_float32):
    model, other = Maps(), Maps()
    optimizer, reference = muon(model, weight_decay=0.3, **knobs), theirs(other.parameters(), 0.02, 0.3, **knobs)
    for step in range(5):
        for each in (model, other):
            gradients(each.parameters(), step)
        for each in (optimizer, reference):
            each.param_groups[0]["lr"] = 0.02 / (step + 1)
            each.step()
    for one, wanted in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, wanted, atol=2e-5, rtol=0)


def test_in_bfloat16_torch_is_as_far_away_as_it_rounds():
    model, other = Maps(), Maps()
    start = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer, reference = muon(model, lr=0.02, weight_decay=0.0), theirs(other.parameters(), 0.02, 0.0)
    gradients(model.parameters(), 0), gradients(other.parameters(), 0)
    optimizer.step(), reference.step()
    for one, wanted, before in zip(model.parameters(), other.parameters(), start, strict=True):
        assert 0 < (one - wanted).norm() < 0.02 * (wanted - before).norm()


def expert_by_expert(knobs, model, other, reference):
    """How far the experts of `model` end from those that torch moved one by one."""
    optimizer = muon(model, lr=0.02, weight_decay=0.3, **knobs)
    for step in range(4):
        gradients(model.parameters(), step)
        for matrices, parameter in zip(other, model.parameters(), strict=True):
            for matrix, gradient in zip(matrices, parameter.grad.unflatten(0, (len(matrices), -1)), strict=True):
                matrix.grad = gradient.reshape(matrix.shape).clone()
        optimizer.step(), reference.step()
    ends = [torch.stack(list(matrices)).reshape(p.shape) for matrices, p in zip(other, model.parameters(), strict=True)]
    return max((p - end).abs().max().item() for p, end in zip(model.parameters(), ends, strict=True))


@pytest.mark.parametrize("knobs", KNOBS.values(), ids=KNOBS)
def test_experts_in_one_tensor_move_each_by_itself(knobs, in_float32):
    model = Maps(experts=True)
    alone = [
        [torch.nn.Parameter(matrix.detach().clone()) for matrix in p.reshape(-1, *p.shape[-2:])]
        for p in model.parameters()
    ]
    reference = theirs([matrix for matrices in alone for matrix in matrices], 0.02, 0.3, **knobs)
    assert expert_by_expert(knobs, model, alone, reference) < 2e-5


def test_experts_taken_for_one_matrix_are_seen(in_float32):
    model = Maps(experts=True)
    joined = [[torch.nn.Parameter(p.detach().clone().reshape(-1, p.shape[-1]))] for p in model.parameters()]
    reference = theirs([matrix for matrices in joined for matrix in matrices], 0.02, 0.3)
    assert expert_by_expert({}, model, joined, reference) > 1e-2


def test_how_many_are_multiplied_at_once_changes_nothing(monkeypatch):
    ends = []
    for at_once in (1, 400, 2**26):
        monkeypatch.setattr(module, "_AT_ONCE", at_once)
        model = Maps(experts=True, dtype=torch.float64)
        optimizer = muon(model)
        for step in range(3):
            gradients(model.parameters(), step)
            optimizer.step()
        ends.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    torch.testing.assert_close(ends[0], ends[1], atol=1e-12, rtol=0)
    torch.testing.assert_close(ends[0], ends[2], atol=1e-12, rtol=0)


def test_an_expert_that_no_token_reached_only_decays():
    model = Maps(experts=True)
    optimizer = muon(model, lr=0.1, weight_decay=0.5)
    gradients(model.parameters(), 0)
    weight = model.stacks[0].weight
    weight.grad[1] = 0
    before = weight.detach().clone()
    optimizer.step()
    torch.testing.assert_close(weight[1].detach(), 0.95 * before[1])
    assert (weight[0] - 0.95 * before[0]).abs().min() > 0


@pytest.mark.parametrize("shape", [(32, 32), (16, 96), (96, 16)])
def test_a_step_is_as_long_as_one_of_adamw(shape):
    """Liu et al. (2025), 2.2: the root mean square of a step is about 0.2, as AdamW's is, whatever the shape."""
    model = torch.nn.Sequential(Linear(shape[1], shape[0]))
    before = model[0].weight.data.normal_().clone()
    gradients(model.parameters(), 0)
    muon(model, lr=1.0, weight_decay=0.0).step()
    assert (model[0].weight - before).square().mean().sqrt().item() == pytest.approx(0.2, rel=0.2)


# what goes by it


def moved_by(model, **knobs):
    """(the names of what is made orthogonal, of what goes by AdamW)."""
    groups = muon(model, **knobs).param_groups
    ours = {id(p) for group in groups if group["orthogonal"] for p in group["params"]}
    assert groups[0]["orthogonal"]  # whose rate is logged
    names = {name: id(parameter) in ours for name, parameter in model.named_parameters()}
    return {name for name, is_ours in names.items() if is_ours}, {
        name for name, is_ours in names.items() if not is_ours
    }


@pytest.mark.parametrize("tied", ["true", "false"])
def test_matrices_of_a_dense_model_go_by_it(tmp_path, tied):
    options = ["model.ffn.bias=true", "model.head.bias=true", "model/position=learned", f"model.tie_embeddings={tied}"]
    ours, rest = moved_by(build(spec_of(tmp_path, *options).model, seed=0))
    assert {re.sub(r"\d+", "0", name) for name in ours} == {
        *(f"layers.0.mixer.{name}.weight" for name in "qkvo"),
        *(f"layers.0.ffn.{name}.weight" for name in ("gate", "up", "down")),
    }
    assert {"embedding.weight", "positions.model.weight", "head.bias", "layers.0.ffn.up.bias"} <= rest
    assert ("head.weight" in rest) == (tied == "false")


def test_experts_and_routers_go_by_it():
    model = build(load(compose([*MOE, "model.ffn.expert.bias=true"])).model, seed=0)
    ours, rest = moved_by(model)
    for layer in (0, 1):
        experts = {f"layers.{layer}.ffn.experts.{name}" for name in ("gate", "up", "down")}
        assert {f"layers.{layer}.ffn.router.weight", *(f"{name}.weight" for name in experts)} <= ours
        assert {f"{name}.bias" for name in experts} <= rest
    assert all(model.get_parameter(name).ndim == 3 for name in ours if "experts" in name)
    assert "embedding.weight" in rest and not {name for name in ours if "norm" in name}


def test_the_rest_goes_by_the_adamw_of_torch(tmp_path):
    model, other = (build(spec_of(tmp_path, "model.tie_embeddings=false").model, seed=0) for _ in range(2))
    knobs = {"adamw_lr": 3e-3, "adamw_betas": (0.8, 0.9), "adamw_eps": 1e-6, "weight_decay": 0.2}
    optimizer, (_, rest) = muon(model, **knobs), moved_by(model, **knobs)
    matrices = [parameter for name, parameter in other.named_parameters() if name in rest and parameter.ndim > 1]
    vectors = [parameter for name, parameter in other.named_parameters() if name in rest and parameter.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.2}, {"params": vectors, "weight_decay": 0.0}]
    reference = torch.optim.AdamW(groups, lr=3e-3, betas=(0.8, 0.9), eps=1e-6, fused=True)
    for step in range(4):
        gradients(model.parameters(), step), gradients(other.parameters(), step)
        optimizer.step(), reference.step()
    assert len(rest) == len(matrices) + len(vectors)
    for name in rest:
        assert torch.equal(model.get_parameter(name), other.get_parameter(name)), name


def test_the_rest_has_the_same_rate_unless_told():
    for knobs, wanted in (({"lr": 0.01}, {0.01}), ({"lr": 0.01, "adamw_lr": 0.002}, {0.01, 0.002})):
        groups = muon(torch.nn.Sequential(Linear(4, 4, bias=True), torch.nn.Embedding(3, 4)), **knobs).param_groups
        assert {group["lr"] for group in groups} == wanted
        assert {group["lr"] for group in groups if group["orthogonal"]} == {0.01}


def test_the_original_scale_needs_a_rate_for_the_rest():
    config = registry.find("optimizer", "muon").Config
    with pytest.raises(ValueError, match="adamw_lr"):
        config(scale="original")
    assert config(**ORIGINAL).adamw_lr == 1e-3
