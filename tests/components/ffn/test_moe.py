"""A mixture of experts against a loop over tokens and experts: outputs, gradients, capacity (C16), what it counts."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from builder import registry
from builder.model.mask import Mask
from tests.components.router.loop import mixture

D = 8
MLP, GLU = {"name": "mlp", "d_ff": 5}, {"name": "glu", "d_ff": 6}
GROUPED = {"name": "grouped_topk", "n_groups": 3, "top_groups": 2}
OPTIONS = {
    "topk": {},
    "topk plain": {"router": {"name": "topk", "weights": "plain"}},
    "topk selected": {"router": {"name": "topk", "weights": "selected"}},
    "sigmoid": {"router": {"name": "topk", "score": "sigmoid"}},
    "sigmoid plain": {"router": {"name": "topk", "score": "sigmoid", "weights": "plain"}},
    "a router with a bias": {"router": {"name": "topk", "bias": True}},
    "three of five": {"n_experts": 5, "top_k": 3},
    "one of one": {"n_experts": 1, "top_k": 1, "router": {"name": "switch"}},
    "switch": {"top_k": 1, "router": {"name": "switch"}},
    "noisy_topk": {"router": {"name": "noisy_topk"}},
    "the best group": {"n_experts": 6, "router": GROUPED | {"group_score": "best", "top_groups": 1}},
    "the best two": {"n_experts": 6, "router": GROUPED | {"group_score": "two"}},
    "as DeepSeek-V3": {"n_experts": 6, "router": GROUPED | {"score": "sigmoid"}, "shared": GLU, "scale": 2.5},
    "expert_choice": {"router": {"name": "expert_choice"}},
    "expert_choice, three of five": {"n_experts": 5, "top_k": 3, "router": {"name": "expert_choice"}},
    "a glu with biases": {"expert": GLU | {"bias": True}},
    "an mlp": {"expert": MLP | {"bias": False}},
    "an mlp with biases": {"expert": MLP},
    "shared": {"shared": GLU},
    "shared of another kind": {"shared": MLP},
    "shared and gated": {"shared": GLU, "shared_gate": True},
    "scaled": {"scale": 2.5},
}
CAUSAL = {"expert_choice": False}


@pytest.fixture
def made(moe):
    return lambda **knobs: moe(causal=CAUSAL.get(knobs.get("router", {}).get("name"), True), **knobs)


def inputs(rows=3, length=5, padded=False):
    """x (B, T, D), and which tokens are real: one row whole, one padded at its front, one of padding alone."""
    x = torch.randn(rows, length, D, dtype=torch.float64, requires_grad=True)
    if not padded:
        return x, None
    real = torch.ones(rows, length, dtype=torch.bool)
    real[1, :2], real[2] = False, False
    return x, real


def run(module, context, x, real=None):
    ctx = context(x.shape[1], mask=Mask(real=real))
    return module(x, ctx), ctx.aux


def gradients(module, x, y, real):
    """Of a sum over the real tokens, by x and every parameter; None where nothing depends on it."""
    weight = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    weight = weight if real is None else weight * real[..., None]
    wanted = {"x": x} | dict(module.named_parameters())
    found = torch.autograd.grad((y * weight).sum(), list(wanted.values()), allow_unused=True)
    return dict(zip(wanted, found, strict=True))


def equals_the_loop(config, module, context, padded=False, factor=None):
    x, real = inputs(padded=padded)
    y, aux = run(module, context, x, real)
    expected, (asked, over, dropped) = mixture(config, module, x, real, factor)
    seen = slice(None) if real is None else real
    assert (y - expected)[seen].abs().max() <= 1e-12
    found, wanted = gradients(module, x, y, real), gradients(module, x, expected, real)
    for name, gradient in found.items():
        if name == "router.noise":
            continue  # has no part outside of training, where these are compared
        assert (gradient - (0 if wanted[name] is None else wanted[name])).abs().max() <= 1e-11, name
    assert list(aux.tallies) == [module] * module.training
    for tally in aux.tallies.values():
        assert tally.tolist() == [*asked, over, dropped] and not tally.requires_grad
    return over, dropped


@pytest.mark.parametrize("padded", [False, True], ids=["", "padded"])
@pytest.mark.parametrize("option", OPTIONS)
def test_equals_the_loop(made, context, option, padded):
    config, module = made(**OPTIONS[option])
    equals_the_loop(config, module.eval(), context, padded)


def test_every_router_is_compared():
    named = {knobs.get("router", {"name": "topk"})["name"] for knobs in OPTIONS.values()}
    assert named == set(registry.names("router"))


@pytest.mark.parametrize("overflow", ["drop", "reroute", "expand"])
@pytest.mark.parametrize("factor", [0.5, 1.0])
@pytest.mark.parametrize("option", ["topk", "three of five", "switch", "topk selected", "the best two"])
def test_equals_the_loop_within_a_capacity(made, context, option, factor, overflow):
    limits = OPTIONS[option] | {"overflow": overflow}
    config, module = made(**limits | {"capacity_factor": factor})
    over, dropped = equals_the_loop(config, module.train(), context, padded=True, factor=factor)
    assert over >= dropped >= 0 and (factor > 0.5 or over), "at half a capacity something overflows"


@pytest.mark.parametrize("overflow", ["drop", "reroute", "expand"])
def test_each_capacity_is_of_its_mode_alone(made, context, overflow):
    for of_training, of_others in ((0.5, None), (None, 0.5), (0.5, 1.0)):
        factors = {"capacity_factor": of_training, "eval_capacity_factor": of_others}
        config, module = made(overflow=overflow, **factors)
        equals_the_loop(config, module.train(), context, factor=of_training)
        equals_the_loop(config, module.eval(), context, factor=of_others)


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 1), (2, 13)])
@pytest.mark.parametrize("option", ["topk", "an mlp with biases", "expert_choice"])
def test_equals_the_loop_whatever_the_sizes(made, context, option, shape):
    config, module = made(**OPTIONS[option])
    x, _ = inputs(*shape)
    assert (run(module, context, x)[0] - mixture(config, module, x)[0]).abs().max() <= 1e-12


@pytest.mark.parametrize("option", ["topk plain", "sigmoid", "scaled", "the best group", "the best two"])
def test_another_option_is_seen(made, context, option):
    config, module = made(**OPTIONS[option])
    other, _ = made(**{"n_experts": config.n_experts})
    x, _ = inputs()
    assert (run(module, context, x)[0] - mixture(other, module, x)[0]).abs().max() > 1e-3


def test_no_tokens_give_no_output(made, context):
    _, module = made(shared=GLU)
    assert run(module, context, torch.empty(0, 5, D, dtype=torch.float64))[0].shape == (0, 5, D)


# C16


def all_to_the_first(made, **knobs):
    """A mixture whose router sends every token to expert 0 first."""
    config, module = made(router={"name": "topk", "bias": True, "weights": "plain"}, **knobs)
    with torch.no_grad():
        module.router.weight.zero_()
        module.router.bias.copy_(torch.arange(config.n_experts, 0, -1))
    return module.train()


def test_half_are_dropped_when_all_go_to_one_of_two(made, context):
    module = all_to_the_first(made, n_experts=2, top_k=1, capacity_factor=1.0)
    x, _ = inputs(1, 4)
    y, aux = run(module, context, x)
    assert (y[0, :2].abs().sum(-1) > 0).all() and (y[0, 2:] == 0).all() and y.isfinite().all()
    asked, over, dropped = aux.tallies[module].tolist()[:2], *aux.tallies[module].tolist()[2:]
    assert asked == [4, 0] and over == dropped == 2 and dropped / sum(asked) == 0.5
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert (gradient[0, 2:] == 0).all() and gradient.isfinite().all()


@pytest.mark.parametrize(("n_experts", "top_k"), [(2, 1), (4, 2), (8, 2), (4, 4)])
def test_a_capacity_of_all_tokens_is_dropless(made, context, n_experts, top_k):
    limited, free = (
        all_to_the_first(made, n_experts=n_experts, top_k=top_k, capacity_factor=factor)
        for factor in (n_experts / top_k, None)
    )
    x, _ = inputs()
    (y, aux), (expected, _) = run(limited, context, x), run(free, context, x)
    assert (y - expected).abs().max() <= 1e-6 and aux.tallies[limited][-2:].tolist() == [0, 0]
    if top_k < n_experts:
        less = all_to_the_first(made, n_experts=n_experts, top_k=top_k, capacity_factor=0.9 * n_experts / top_k)
        assert (run(less, context, x)[0] - expected).abs().max() > 1e-3


def test_a_lone_token_always_finds_an_expert(made, context):
    module = all_to_the_first(made, n_experts=8, top_k=1, capacity_factor=1.0)
    y, aux = run(module, context, inputs(1, 1)[0])
    assert y.abs().max() > 0 and aux.tallies[module][-1] == 0


# what it says of its costs


@pytest.mark.parametrize("length", [1, 7])
@pytest.mark.parametrize("option", OPTIONS)
def test_the_flops_it_states_are_counted(made, context, option, length):
    _, module = made(**OPTIONS[option])
    x, _ = inputs(1, length)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        run(module.eval(), context, x)
    assert module.flops(length) == counter.get_total_flops()


@pytest.mark.parametrize("option", ["topk", "three of five", "an mlp with biases", "switch"])
def test_idle_are_the_experts_that_a_token_does_not_reach(made, option):
    config, module = made(**OPTIONS[option])
    x = torch.randn(1, D, dtype=torch.float64)
    routing = module.router.eval().route(x, None, None)
    reached = sum(p[routing.chosen[0]].numel() for p in module.experts.parameters())
    assert module.idle_parameters() == sum(p.numel() for p in module.experts.parameters()) - reached


@pytest.mark.parametrize("option", ["topk", "three of five", "switch"])
def test_dispatched_is_what_leaves_for_the_experts(made, option):
    _, module = made(**OPTIONS[option])
    x = torch.randn(7, D, dtype=torch.float64)
    assert module.dispatched() == module.router.route(x, None, None).dispatch.spread(x).numel() / len(x)
