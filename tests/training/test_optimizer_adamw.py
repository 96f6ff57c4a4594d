"""AdamW against the loop of the paper, and the rates that tables and head have of their own."""

import pytest
import torch

from builder import build, registry
from builder.errors import ConfigError
from tests.tiny_run import spec_of, trained

UNTIED = ["model.tie_embeddings=false", "model.head.bias=true", "model/position=learned"]


def adamw(model, **knobs):
    kind = registry.find("optimizer", "adamw")
    return kind.build(kind.Config(**knobs), model)


def unfelt(model, **knobs):
    kind = registry.find("optimizer", "adamw")
    return list(kind.unfelt(kind.Config(**knobs), model))


class Two(torch.nn.Module):
    """A matrix, which decays, and a vector, which doesn't."""

    def __init__(self):
        super().__init__()
        self.matrix, self.vector = (
            torch.nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in ((3, 2), 3)
        )


def test_adamw_is_the_loop_of_the_paper():
    lr, betas, eps, decay = 1e-2, (0.9, 0.95), 1e-8, 0.1
    model = Two()
    optimizer = adamw(model, lr=lr, betas=betas, eps=eps, weight_decay=decay)
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


def rates(model, **knobs):
    """The rate of each parameter by its name, and whether it decays."""
    optimizer = adamw(model, lr=0.001, **knobs)
    found = {id(p): (group["lr"], group["weight_decay"]) for group in optimizer.param_groups for p in group["params"]}
    assert optimizer.param_groups[0]["lr"] == 0.001  # the rate that is logged
    return {name: found[id(parameter)] for name, parameter in model.named_parameters()}


def test_tables_and_head_have_rates_of_their_own(tmp_path):
    model = build(spec_of(tmp_path, *UNTIED).model, seed=0)
    plain = rates(model)
    assert {rate for rate, _ in plain.values()} == {0.001}
    table, position = "embedding.weight", "positions.model.weight"
    for knobs, moved in (
        ({"embedding_lr": 0.01}, {table: 0.01, position: 0.01}),
        ({"head_lr": 0.02}, {"head.weight": 0.02, "head.bias": 0.02}),
        (
            {"embedding_lr": 0.01, "head_lr": 0.02},
            {table: 0.01, position: 0.01, "head.weight": 0.02, "head.bias": 0.02},
        ),
    ):
        found = rates(model, **knobs)
        assert {name: rate for name, (rate, _) in found.items() if rate != 0.001} == moved
        assert {name: decay for name, (_, decay) in found.items()} == {
            name: decay for name, (_, decay) in plain.items()
        }


def test_a_rate_that_is_equal_changes_nothing(tmp_path):
    ends = []
    for knobs in ({}, {"embedding_lr": 1e-3, "head_lr": 1e-3}):
        model = build(spec_of(tmp_path, *UNTIED).model, seed=0)
        optimizer = adamw(model, **knobs)
        for seed in range(3):
            generator = torch.Generator().manual_seed(seed)
            for parameter in model.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=generator)
            optimizer.step()
        ends.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    assert torch.equal(*ends)


def test_a_tied_table_has_the_rate_of_tables(tmp_path):
    model = build(spec_of(tmp_path).model, seed=0)
    assert rates(model, embedding_lr=0.01)["embedding.weight"][0] == 0.01


@pytest.mark.parametrize("options", [[], ["model.head.bias=true"]])
def test_a_rate_for_a_tied_head_is_refused(tmp_path, options):
    model = build(spec_of(tmp_path, *options).model, seed=0)
    (problem,) = unfelt(model, head_lr=0.01)
    assert (problem.path, problem.found) == ("optimizer.head_lr", "0.01")
    assert "embedding_lr" in problem.rule and "model.tie_embeddings=false" in problem.fix
    assert not unfelt(build(spec_of(tmp_path, *options, "model.tie_embeddings=false").model, seed=0), head_lr=0.01)


def test_a_rate_for_a_table_that_is_not_trained_is_refused(tmp_path):
    model = build(spec_of(tmp_path, "model.tie_embeddings=false").model, seed=0)
    assert not unfelt(model, embedding_lr=0.01)
    model.embedding.weight.requires_grad = False
    (problem,) = unfelt(model, embedding_lr=0.01)
    assert (problem.path, problem.found) == ("optimizer.embedding_lr", "0.01")


def test_a_run_is_told_so_before_anything_is_written(tmp_path):
    with pytest.raises(ConfigError, match=r"optimizer\.head_lr: found 0\.01"):
        trained(tmp_path, "optimizer.head_lr=0.01")
    assert not list(tmp_path.glob("out/**/*"))
