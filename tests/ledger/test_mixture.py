"""What experts cost: active parameters, and what a token sends when they lie on several ranks."""

import pytest

from builder import compose, ledger, load

D, LAYERS, X, K, F = 32, 3, 8, 2, 24
MOE = ["model/ffn=moe", f"model.d_model={D}", f"model.n_layers={LAYERS}", "model.attention.n_heads=4"]
MOE += [f"model.ffn.n_experts={X}", f"model.ffn.top_k={K}", f"model.ffn.expert.d_ff={F}"]


@pytest.fixture(scope="module")
def costs():
    return ledger(load(compose(MOE)).model)


def test_a_token_passes_through_k_experts_of_each_layer(costs):
    assert costs.params - costs.active_params == LAYERS * (X - K) * 3 * D * F
    assert costs.summary()["ledger/active_params"] == costs.active_params < costs.params


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_a_copy_for_each_expert_goes_and_comes_back(costs, ranks):
    """Of R ranks a token's own holds one in R of the experts: the other copies travel, in numbers of 4 bytes."""
    away = K * (ranks - 1) / ranks
    assert costs.communication(ranks) == pytest.approx(LAYERS * 2 * away * D * 4)


def test_experts_on_no_rank_are_refused(costs):
    with pytest.raises(ValueError, match="ranks: found 0"):
        costs.communication(0)


def test_a_dense_model_sends_nothing():
    costs = ledger(load(compose(["model.n_layers=2"])).model)
    assert costs.communication(8) == costs.dispatched_per_token == 0 and costs.active_params == costs.params
    assert "ledger/dispatched_per_token" not in costs.summary() and "ranks" not in str(costs)


def test_what_is_sent_is_shown(costs):
    assert f"bytes sent, 4 ranks{costs.communication(4):>27,}" in str(costs)


def test_a_mixture_that_layers_share_is_sent_to_in_each_of_them(costs):
    shared = ledger(load(compose([*MOE, "model.shared=[attention+ffn]"])).model)
    assert shared.params < costs.params and shared.dispatched_per_token == costs.dispatched_per_token == LAYERS * K * D
