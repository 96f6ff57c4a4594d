"""Who is chosen and how it is weighed: by hand, against transformers, with ties, and what a preference moves."""

import pytest
import torch
from transformers.models.deepseek_v3.configuration_deepseek_v3 import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter

from builder import registry
from builder.components.router import Router

D = 6
ROUTERS = registry.names("router")
CHOOSING = [name for name in ROUTERS if name != "expert_choice"]
GROUPS = {"grouped_topk": {"n_groups": 2, "top_groups": 1}}


@pytest.fixture
def router(config, wide):
    """router(name, n_experts, top_k, learns, **knobs): a router in float64 and eval mode, drawn wide."""

    def make(name, n_experts=4, top_k=2, learns=False, **knobs) -> Router:
        chosen = config("router", name, **GROUPS.get(name, {}) | knobs)
        return wide(chosen.component(chosen, D, n_experts, top_k, learns)).eval()

    return make


def tokens(count=9, seed=0):
    return 5 * torch.randn(count, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def weights_of(routing):
    """(N, X): how much of each expert a token gets."""
    return torch.zeros_like(routing.logits).scatter(1, routing.chosen, routing.dispatch.weights.T)


def test_scores_that_are_all_zero_make_no_nan(router):
    module = router("topk", score="sigmoid").float()
    with torch.no_grad():
        module.weight.fill_(-1.0)
    routing = module.route(torch.full((2, D), 1e3), None, None)
    assert routing.probabilities.isfinite().all() and routing.dispatch.weights.isfinite().all()


@pytest.mark.parametrize("weights", ["renormalised", "plain", "selected"])
def test_a_token_by_hand(router, weights):
    """Scores 1/2, 1/3, 1/6, of which two are chosen: 3/5 and 2/5 of what both are together."""
    module = router("topk", n_experts=3, weights=weights)
    with torch.no_grad():
        module.weight.zero_()
        module.weight[:, 0] = torch.tensor([3.0, 2.0, 1.0]).log()
    x = torch.zeros(1, D, dtype=torch.float64)
    x[0, 0] = 1
    routing = module.route(x, None, None)
    expected = {"plain": [1 / 2, 1 / 3, 0]}.get(weights, [3 / 5, 2 / 5, 0])
    assert weights_of(routing)[0].tolist() == pytest.approx(expected, abs=1e-7)
    assert routing.probabilities[0].tolist() == pytest.approx([1 / 2, 1 / 3, 1 / 6], abs=1e-7)


@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
def test_renormalised_weights_sum_to_one(router, score):
    weights = weights_of(router("topk", score=score).route(tokens(), None, None))
    assert torch.allclose(weights.sum(-1), torch.ones(9).double()) and ((weights > 0).sum(-1) == 2).all()


@pytest.mark.parametrize("name", CHOOSING)
@pytest.mark.parametrize("how", ["no weights", "equal rows"])
def test_ties_still_give_different_experts(router, name, how):
    top_k = 1 if name == "switch" else 2
    module = router(name, top_k=top_k)
    with torch.no_grad():
        module.weight.copy_(torch.zeros_like(module.weight) if how == "no weights" else module.weight[:1].clone())
    routing = module.route(tokens(), None, None)
    assert (routing.logits == routing.logits[:, :1]).all(), "all are equal"
    assert all(len(set(chosen)) == top_k for chosen in routing.chosen.tolist())
    assert (routing.chosen < 4).all() and routing.asked.sum() == 9 * top_k


def test_ties_still_give_every_expert_different_tokens(router):
    module = router("expert_choice")
    with torch.no_grad():
        module.weight.zero_()
    held = module.route(tokens(8), None, None).dispatch.tokens.view(4, 4)  # C = 8 * 2 / 4
    assert all(len(set(row)) == 4 for row in held.tolist())


@pytest.mark.parametrize("name", ROUTERS)
def test_padding_goes_nowhere_and_leaves_the_others_alone(router, name):
    module = router(name, top_k=1 if name == "switch" else 2)
    x, real = tokens(10), torch.arange(10) % 5 > 0
    routing, alone = module.route(x, real, None), module.route(x[real], None, None)
    y = routing.dispatch.gather(routing.dispatch.spread(x))
    assert (y[~real] == 0).all() and (
        y[real] - alone.dispatch.gather(alone.dispatch.spread(x[real]))
    ).abs().max() < 1e-12
    assert torch.equal(routing.asked, alone.asked)


# preference


@pytest.mark.parametrize("name", CHOOSING)
def test_a_preference_chooses_and_weighs_nothing(router, name):
    top_k = 1 if name == "switch" else 2
    plain, pulled = router(name, top_k=top_k), router(name, top_k=top_k, learns=True)
    assert plain.preference is None and (pulled.preference == 0).all()
    x = tokens()
    before = plain.route(x, None, None)
    assert torch.equal(before.chosen, pulled.route(x, None, None).chosen)
    pulled.preference += torch.tensor([0.0, 0.0, 0.0, 10.0])
    after = pulled.route(x, None, None)
    assert (after.chosen == 3).any(-1).all() and not torch.equal(before.chosen, after.chosen)
    assert torch.equal(before.logits, after.logits) and torch.equal(before.probabilities, after.probabilities)
    pulled.preference[:] = 10.0  # all alike: nobody is preferred, and a weight that held it would be seen
    alike = pulled.route(x, None, None)
    assert torch.equal(weights_of(alike), weights_of(before))


def test_a_preference_moves_towards_the_mean(router):
    module = router("topk", learns=True)
    counts = torch.tensor([7.0, 1.0, 4.0, 4.0])  # in the mean 4
    module.settle(counts, 0.25)
    assert module.preference.tolist() == [-0.25, 0.25, 0.0, 0.0]
    module.settle(counts.flip(0), 0.5)
    assert module.preference.tolist() == [-0.25, 0.25, 0.5, -0.5]


def test_settling_evens_out_the_load(router):
    module, x = router("topk", top_k=1, learns=True), tokens(64) + 5
    uneven = module.route(x, None, None).asked
    for _ in range(300):
        module.settle(module.route(x, None, None).asked.double(), 0.01)
    even = module.route(x, None, None).asked
    assert uneven.max() >= 24 and even.max() <= 18, f"{uneven.tolist()} -> {even.tolist()}"


def test_a_preference_is_saved_and_not_trained(router):
    module = router("topk", learns=True)
    assert "preference" in module.state_dict() and "preference" not in dict(module.named_parameters())
    assert "preference" not in router("topk").state_dict()
    module.preference += 0.5
    routing = module.route(tokens(), None, None)
    weights_of(routing).sum().backward()
    assert module.preference.grad is None and not module.preference.requires_grad
    other = router("topk", learns=True)
    other.load_state_dict(module.state_dict())
    assert torch.equal(other.preference, module.preference)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_a_preference_is_float32_at_least(router, dtype):
    """0.5 + 0.001 is 0.5 in bfloat16: there it would stand still."""
    module = router("topk", learns=True).float()
    module.preference += 0.501
    module.to(dtype)
    assert module.preference.dtype == torch.promote_types(dtype, torch.float32)
    module.settle(torch.tensor([0.0, 2.0, 1.0, 1.0]), 0.001)
    assert module.preference[0].item() == pytest.approx(0.502, abs=1e-6)


# against transformers


def test_the_groups_of_deepseek_v3(router):
    """Sigmoid scores with the preference added choose; groups compare by their best two; weights are without it."""
    module = router("grouped_topk", n_experts=8, top_k=3, learns=True, n_groups=4, top_groups=2, score="sigmoid")
    module.preference += torch.linspace(-0.3, 0.3, 8)
    theirs = DeepseekV3TopkRouter(
        DeepseekV3Config(
            hidden_size=D, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, norm_topk_prob=True,
            routed_scaling_factor=1.0,
        )
    )  # fmt: skip
    theirs.load_state_dict({"weight": module.weight, "e_score_correction_bias": module.preference})
    x = tokens(40)
    routing = module.route(x, None, None)
    logits, weights, chosen = theirs(x)
    assert (routing.logits - logits).abs().max() <= 1e-5
    expected = torch.zeros(40, 8).scatter(1, chosen, weights)
    assert (weights_of(routing) - expected).abs().max() <= 1e-6
