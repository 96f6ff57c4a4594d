"""What routers draw: noise and jitter, in training alone; and the precision that they are computed in."""

import pytest
import torch
import torch.nn.functional as F

from builder import registry
from builder.components.router import Router

D = 6
ROUTERS = registry.names("router")
GROUPS = {"grouped_topk": {"n_groups": 2, "top_groups": 1}}


@pytest.fixture
def router(config, wide):
    def make(name, **knobs) -> Router:
        chosen = config("router", name, **GROUPS.get(name, {}) | knobs)
        return wide(chosen.component(chosen, D, 4, 1 if name == "switch" else 2))

    return make


@pytest.fixture
def x():
    return torch.randn(9, D, dtype=torch.float64)


def logits(module, x, seed=0):
    torch.manual_seed(seed)
    return module.route(x, None, None).logits


@pytest.mark.parametrize("jitter", [0.0, 0.1])
@pytest.mark.parametrize("name", ROUTERS)
def test_nothing_is_drawn_outside_of_training(router, x, name, jitter):
    module = router(name, jitter=jitter).eval()
    assert torch.equal(logits(module, x), F.linear(x, module.weight)) and torch.equal(
        logits(module, x), logits(module, x, seed=1)
    )


@pytest.mark.parametrize("name", [name for name in ROUTERS if name != "noisy_topk"])
def test_jitter_is_drawn_in_training(router, x, name):
    module, plain = router(name, jitter=0.1).train(), router(name).train()
    assert not torch.equal(logits(module, x), logits(module, x, seed=1))
    assert torch.equal(logits(plain, x), logits(plain, x, seed=1)), "and only if it is asked for"
    assert torch.equal(logits(plain, x), F.linear(x, plain.weight))


def test_jitter_multiplies_the_input_within_its_bounds(router):
    module = router("switch", jitter=0.1).train()
    factors = module.jittered(torch.ones(2000, D, dtype=torch.float64))
    assert 0.9 <= factors.min() < 0.901 and 1.099 < factors.max() <= 1.1
    assert abs(factors.mean() - 1) < 0.005 and factors.unique().numel() == factors.numel()
    x = torch.randn(4, D, dtype=torch.float64)
    torch.manual_seed(3)
    drawn = module.jittered(x)
    assert torch.allclose(logits(module, x, seed=3), drawn @ module.weight.T)


def test_jitter_in_bfloat16_is_jitter(router):
    """bfloat16 has nothing between 0.996 and 1.008."""
    module = router("switch", jitter=0.003).train()
    factors = module.jittered(torch.ones(1000, D, dtype=torch.bfloat16))
    assert factors.unique().numel() > 1000 and 0.997 <= factors.min() < factors.max() <= 1.003


def test_noise_is_its_formula(router, x):
    """H(x) = x W_g + N(0, 1) softplus(x W_noise)."""
    module = router("noisy_topk").train()
    found = torch.stack([logits(module, x, seed) for seed in range(400)])
    clean, strength = x @ module.weight.T, torch.log(1 + torch.exp(x @ module.noise.T))
    assert ((found.mean(0) - clean).abs() <= 4 * strength / 400**0.5).all()
    assert (found.std(0) / strength - 1).abs().max() <= 0.2
    torch.manual_seed(0)
    assert torch.allclose(found[0], clean + torch.randn_like(clean) * strength)


def test_noise_of_no_strength_is_topk_of_the_selected(router, x):
    x[:, 0] = 1
    noisy, plain = router("noisy_topk").train(), router("topk", weights="selected").train()
    with torch.no_grad():
        noisy.noise.zero_()
        noisy.noise[:, 0] = -50  # softplus(-50) is 0
        plain.weight.copy_(noisy.weight)
    found, wanted = noisy.route(x, None, None), plain.route(x, None, None)
    assert torch.equal(found.chosen, wanted.chosen)
    assert torch.allclose(found.dispatch.weights, wanted.dispatch.weights, atol=1e-12)


def test_the_strength_is_learned(router, x):
    module = router("noisy_topk").train()
    torch.manual_seed(0)
    routing = module.route(x, None, None)
    routing.dispatch.weights.square().sum().backward()
    assert module.noise.grad.abs().max() > 0
    module.zero_grad()
    module.eval().route(x, None, None).dispatch.weights.square().sum().backward()
    assert module.noise.grad is None


# precision


@pytest.mark.parametrize("name", ROUTERS)
def test_logits_are_float32_under_autocast(router, x, name):
    """Experts 0 and 1 differ by a thousandth, which bfloat16 rounds away."""
    module = router(name).float().eval()
    with torch.no_grad():
        module.weight.fill_(-1)
        module.weight[0], module.weight[1] = 1.0, 1.001
    one = F.one_hot(torch.tensor([0, 0]), D).float()
    with torch.autocast("cpu", torch.bfloat16):
        rounded = F.linear(one, module.weight)
        routing = module.route(one, None, None)
    assert rounded.dtype == torch.bfloat16 and (rounded[:, 0] == rounded[:, 1]).all(), "a tie, if it were rounded"
    assert routing.logits.dtype == routing.probabilities.dtype == torch.float32
    assert (routing.logits[:, 1] > routing.logits[:, 0]).all()
    if routing.chosen is not None:
        assert (routing.chosen[:, 0] == 1).all()


@pytest.mark.parametrize("name", ROUTERS)
def test_logits_of_a_bfloat16_model_are_float32(router, x, name):
    module = router(name).bfloat16().eval()
    routing = module.route(x.bfloat16(), None, None)
    assert routing.logits.dtype == routing.dispatch.weights.dtype == torch.float32
    assert torch.allclose(routing.logits, x.bfloat16().float() @ module.weight.float().T, atol=1e-6)
