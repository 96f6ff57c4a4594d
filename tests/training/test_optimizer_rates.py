"""Learning rates that the init scales: every optimizer honours them, each for the kind of step it takes."""

import pytest
import torch

from builder import build, registry
from builder.training.optimizer import decay_groups
from tests.tiny_run import MOE, spec_of

OPTIMIZERS = registry.names("optimizer")
MUP = ["model/init=mup", "model.init.base_d_model=4"]  # of a model of width 16: m = 4
UNTIED = "model.tie_embeddings=false"
ORIGINAL = {"scale": "original", "adamw_lr": 0.01}


def made(name, model, **knobs):
    kind = registry.find("optimizer", name)
    return kind.build(kind.Config(**knobs), model)


def pair(folder, *more):
    """The same weights under mu-P and without it."""
    models = [build(spec_of(folder, *more, *init).model, seed=0, dtype=torch.float64) for init in (MUP, [])]
    models[0].load_state_dict(models[1].state_dict())
    return models


def step(name, model, seed=0, **knobs):
    """How far each parameter goes in one step of the same random gradients."""
    optimizer, before = made(name, model, **knobs), {key: p.detach().clone() for key, p in model.named_parameters()}
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    optimizer.step()
    return {key: p.detach() - before[key] for key, p in model.named_parameters()}


def test_groups_by_factor_keep_rate_times_decay(tmp_path):
    scaled, plain = pair(tmp_path, UNTIED)
    groups = decay_groups(scaled, 0.1, lr=0.5)
    assert [(group["lr"], group["weight_decay"], len(group["params"])) for group in groups] == [
        (0.5, 0.1, 1),  # the table
        (0.5, 0.0, 3),  # norms
        (0.125, 0.4, 8),  # 7 matrices and the head: AdamW multiplies lr by weight_decay
    ]
    assert [(group["lr"], group["weight_decay"]) for group in decay_groups(plain, 0.1, lr=0.5)] == [
        (0.5, 0.1),
        (0.5, 0.0),
    ]


def test_knobs_of_a_part_are_scaled_too(tmp_path):
    scaled, _ = pair(tmp_path, UNTIED)
    groups = decay_groups(scaled, 0.1, {"head": {"lr": 2.0}, "embedding": {"lr": 3.0}}, lr=0.5)
    rates = {id(parameter): group["lr"] for group in groups for parameter in group["params"]}
    assert rates[id(scaled.head.weight)] == 0.5
    assert rates[id(scaled.embedding.weight)] == 3.0
    assert rates[id(scaled.layers[0].mixer.q.weight)] == 0.125


def test_an_optimizer_that_gives_no_rate_to_scale_is_told(tmp_path):
    scaled, plain = pair(tmp_path)
    decay_groups(plain, 0.1)
    with pytest.raises(TypeError, match="no lr was given to scale"):
        decay_groups(scaled, 0.1)


@pytest.mark.parametrize("options", [[], [UNTIED], MOE], ids=["tied", "untied", "moe"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_matrices_go_a_quarter_as_far_and_the_rest_as_far(tmp_path, name, options):
    """Table 3 of Tensor Programs V, Adam: 1 / m. An orthogonal step: 1 / sqrt(m), and 1 / m where out stays."""
    scaled, plain = (step(name, model, lr=0.01, weight_decay=0.0) for model in pair(tmp_path, *options))
    inside = 1 / 2 if name == "muon" else 1 / 4
    for key, move in plain.items():
        factor = 1.0 if move.ndim == 1 or "embedding" in key else inside
        factor = 1 / 4 if "router" in key or key == "head.weight" else factor
        torch.testing.assert_close(scaled[key], factor * move, rtol=1e-9, atol=1e-12, msg=key)


def test_mu_p_of_the_scale_that_does_not_grow(tmp_path):
    """c = sqrt(max(1, out / in)) keeps the spectral condition of square matrices; a router's wants sqrt(out / in)."""
    scaled, plain = (step("muon", model, lr=0.01, weight_decay=0.0, **ORIGINAL) for model in pair(tmp_path, *MOE))
    for key, move in plain.items():
        factor = 1 / 2 if "router" in key else 1.0
        torch.testing.assert_close(scaled[key], factor * move, rtol=1e-9, atol=1e-12, msg=key)


@pytest.mark.parametrize(("scale", "grows"), [("match_rms_adamw", False), ("original", False), (None, True)])
def test_the_longest_singular_value_of_a_step_is_that_of_the_base(tmp_path, scale, grows):
    """The spectral condition (Yang, Simon & Bernstein 2023) at two widths; without mu-P it isn't kept."""
    longest = []
    for width in (16, 64):
        sizes = [f"model.d_model={width}", f"model.ffn.d_ff={2 * width}", f"model.attention.n_heads={width // 8}"]
        model = build(spec_of(tmp_path, *sizes, *(MUP if scale else [])).model, seed=0)
        knobs = ORIGINAL if scale == "original" else {}
        move = step("muon", model, lr=0.01, weight_decay=0.0, ns_steps=12, **knobs)["layers.0.mixer.o.weight"]
        longest.append(torch.linalg.matrix_norm(move, 2).item())
    assert longest[1] / longest[0] == pytest.approx(2.0 if grows else 1.0, rel=0.15)


@pytest.mark.parametrize("options", [[UNTIED], MOE], ids=["untied", "moe"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_decay_is_that_of_the_base(tmp_path, name, options):
    """Where no gradient says otherwise, what decays shrinks by lr times weight_decay, as if nothing were scaled."""
    model, _ = pair(tmp_path, *options)
    optimizer, before = (
        made(name, model, lr=0.25, weight_decay=0.5),
        {k: p.detach().clone() for k, p in model.named_parameters()},
    )
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for key, parameter in model.named_parameters():
        factor = 1 - 0.25 * 0.5 if parameter.ndim >= 2 else 1.0
        torch.testing.assert_close(parameter.detach(), factor * before[key], atol=1e-15, rtol=1e-12)
