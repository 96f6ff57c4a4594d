"""First values by role: standard deviations, seeds, torch's own modules, and parameters that nobody described."""

import math

import pytest
import torch
from torch import nn

from builder.components.init import roles
from builder.ends import EmbeddingSpec
from builder.model.embedding import Embedding
from builder.model.linear import Linear

WIDE = 400  # 160,000 numbers: the sample's deviation is within 1 % of the true one


@pytest.fixture
def init(config, site):
    def make(name, writes=8, **knobs):
        chosen = config("init", name, **knobs)
        return chosen.component(chosen, site(writes=writes))

    return make


class Everything(nn.Module):
    """One parameter of each role, and torch's own modules beside."""

    def __init__(self):
        super().__init__()
        self.matrix, self.residual = Linear(WIDE, WIDE, bias=True), Linear(WIDE, WIDE, role="residual")
        self.table = Embedding(EmbeddingSpec(), WIDE, WIDE)
        self.linear, self.embedding = nn.Linear(WIDE, WIDE), nn.Embedding(WIDE, WIDE)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDE), nn.RMSNorm(WIDE)])


class Owner(nn.Module):
    """A module that draws its parameter itself."""

    def __init__(self):
        super().__init__()
        self.rate, self.roles = nn.Parameter(torch.zeros(3)), {"rate": "own"}

    def reset(self, generator):
        self.rate.copy_(torch.rand(3, generator=generator) + 5)


@pytest.mark.parametrize(("name", "narrower"), [("normal", 1.0), ("depth_scaled", 1 / math.sqrt(2 * 4))])
@pytest.mark.parametrize("std", [0.02, 0.5])
def test_deviations_by_role(init, name, narrower, std):
    model = Everything()
    for parameter in model.parameters():
        parameter.data.fill_(7.0)
    init(name, writes=2 * 4, std=std).apply(model)  # 4 layers of 2 parts
    expected = {"matrix": 1, "residual": narrower, "table": 1, "linear": 1, "embedding": 1}
    for child, factor in expected.items():
        weight = model.get_submodule(child).weight
        assert math.isclose(weight.std().item(), std * factor, rel_tol=0.02), child
        assert abs(weight.mean().item()) < std * 0.02
    for bias in (model.matrix.bias, model.linear.bias, model.norms[0].bias):
        assert (bias == 0).all()
    for norm in model.norms:
        assert (norm.weight == 1).all()


def test_a_seed_gives_the_same_numbers_and_another_seed_others(init):
    drawn = []
    for seed in (1, 1, 2):
        model = Everything()
        init("normal").apply(model, torch.Generator().manual_seed(seed))
        drawn.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


def test_a_module_that_draws_itself_is_asked_to(init):
    model = Owner()
    init("normal").apply(model, torch.Generator().manual_seed(0))
    assert (model.rate >= 5).all()


@pytest.mark.parametrize("name", ["normal", "depth_scaled"])
def test_a_parameter_without_a_role_is_an_error_that_names_it(init, name):
    model = nn.ModuleDict({"part": nn.Conv1d(2, 2, 1)})
    with pytest.raises(ValueError, match=r"part\.weight has no role: its module Conv1d"):
        init(name).apply(model)
    model["part"].roles = {"weight": "matrix", "bias": "bias"}
    init(name).apply(model)
    assert (model["part"].bias == 0).all()


def test_a_subclass_of_torchs_own_must_say_what_it_is():
    class Other(nn.Linear):
        pass

    assert [role for *_, role in roles(Other(2, 2))] == [None, None]
    assert [role for *_, role in roles(nn.Linear(2, 2))] == ["matrix", "bias"]


def test_a_tied_parameter_is_drawn_once_under_its_first_name(init):
    model = nn.ModuleDict({"embedding": nn.Embedding(3, 2), "head": nn.Linear(2, 3, bias=False)})
    model["head"].weight = model["embedding"].weight
    assert [(name, role) for name, _, _, role in roles(model)] == [("embedding.weight", "embedding")]
