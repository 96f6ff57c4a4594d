"""Budgets that are met: the number found against formulas, what may be solved, and what is said where nothing can."""

import copy

import pytest

from builder import ConfigError, compose, ledger, load
from builder.budget import meet

D, LAYERS, HEADS, KV, E, V, T = 128, 4, 4, 2, 32, 258, 128
"""The default model: width, layers, heads, KV heads, head width, vocabulary of bytes, length."""


@pytest.fixture(scope="module")
def default():
    return compose([])


@pytest.fixture
def solve(default):
    """solve(changes, **budget): the config that meets the budget, of the default run with these keys of the model."""

    def make(changes=(), **budget):
        config = copy.deepcopy(default)
        for path, value in dict(changes).items():
            *parents, key = path.split(".")
            node = config["model"]
            for parent in parents:
                node = node[parent]
            node[key] = value
        given = {"name": "params", "target": "1M", "solve": "model.ffn.d_ff"} | budget
        return meet(config | {"budget": given})

    return make


def costs(config):
    return ledger(load({key: value for key, value in config.items() if key != "budget"}).model)


def attention_weights(kv_heads=KV):
    return 2 * D * HEADS * E + 2 * D * kv_heads * E


def params(d_ff, kv_heads=KV):
    """Of the default model: the tied table, and in each layer attention, SwiGLU and two norms; one norm at the end."""
    return V * D + LAYERS * (attention_weights(kv_heads) + 3 * D * d_ff + 2 * D) + D


def flops(d_ff):
    """Two for each weight but those of norms, head included, and the two products of attention over all T positions."""
    weights = V * D + LAYERS * (attention_weights() + 3 * D * d_ff)
    return 2 * weights + LAYERS * 4 * T * HEADS * E


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("target", [500_000, 1_000_000, 10_000_000])
def test_parameters_are_met_by_the_nearest_width(solve, kv_heads, target):
    config = solve({"attention.n_kv_heads": kv_heads}, target=target)
    width = config["model"]["ffn"]["d_ff"]
    exact = (target - params(0, kv_heads)) / (3 * D * LAYERS)
    assert abs(width - exact) <= 0.5 and config["budget"]["solved"] == width
    assert costs(config).params == params(width, kv_heads)


def test_flops_are_met(solve):
    config = solve(name="flops", target="4M")
    nearest = round((4_000_000 - flops(0)) / (2 * 3 * D * LAYERS))
    assert config["model"]["ffn"]["d_ff"] == nearest
    assert costs(config).flops_per_token == flops(nearest)


def test_state_bytes_are_met(solve):
    config = solve(name="state_bytes", target="1MiB", solve="model.n_layers")
    assert config["model"]["n_layers"] == 2**20 // (2 * KV * E * 4 * T)
    assert costs(config).state_bytes == 2**20


def test_active_parameters_are_met_by_the_width_of_an_expert(default):
    config = compose(["model/ffn=moe"])
    budget = {"name": "active_params", "target": "1M", "solve": "model.ffn.expert.d_ff"}
    met = meet(config | {"budget": budget})
    width, router = met["model"]["ffn"]["expert"]["d_ff"], 8 * D
    dense = params(0) + LAYERS * router
    assert width == round((1_000_000 - dense) / (LAYERS * 2 * 3 * D))  # two experts for a token
    assert costs(met).active_params == dense + LAYERS * 2 * 3 * D * width


def test_a_width_stays_one_that_heads_divide(solve):
    config = solve({"attention.n_heads": 8}, solve="model.d_model", target="20M")
    width = config["model"]["d_model"]
    assert width % 16 == 0  # eight heads, each of an even width for rotary positions
    assert costs(config).params == pytest.approx(20e6, rel=0.01)


def test_layers_stay_whole_rounds_of_the_pattern(solve):
    pattern = {"pattern": ["attention+ffn", "attention", "attention"]}
    config = solve(pattern, solve="model.n_layers", target="20M")
    assert config["model"]["n_layers"] % 3 == 0
    assert costs(config).params == pytest.approx(20e6, rel=0.01)
    cut = solve(pattern | {"n_layers": 4})  # whose rounds aren't whole, and nothing here changes that
    assert cut["model"]["n_layers"] == 4


@pytest.mark.parametrize("target", [500_000, 1_000_000, 2_345_678])
def test_a_fine_key_makes_up_for_what_a_coarse_one_leaves(solve, target):
    config = solve(solve=["model.n_layers", "model.ffn.d_ff"], target=target)
    layers, width = config["model"]["n_layers"], config["model"]["ffn"]["d_ff"]
    layer = attention_weights() + 3 * D * 344 + 2 * D
    assert abs(layers - (target - V * D - D) / layer) <= 0.5  # the nearest at the width that stands there
    assert config["budget"]["solved"] == [layers, width]
    assert costs(config).params == pytest.approx(target, rel=0.01)
    assert meet(config) is config and load(config).budget.solved == (layers, width)  # type: ignore[union-attr]


def test_what_is_to_be_solved_need_not_be_given(solve):
    assert solve({"ffn.d_ff": "???"})["budget"]["solved"] == solve()["budget"]["solved"]


def test_what_stands_there_may_be_wrong(solve):
    config = solve({"d_model": 130}, solve="model.d_model", target="20M")
    assert config["model"]["d_model"] % 8 == 0


def test_what_is_given_stays_as_it_was(default):
    config = default | {"budget": {"name": "params", "target": "1M", "solve": "model.ffn.d_ff"}}
    before = copy.deepcopy(config)
    met = meet(config)
    assert config == before and met != before
    assert {key: met[key] for key in met if key not in ("model", "budget")} == {
        key: before[key] for key in before if key not in ("model", "budget")
    }
    assert met["budget"] == before["budget"] | {"target": 1_000_000, "solved": 501}


def test_no_budget_or_one_that_was_solved_changes_nothing(default, solve):
    solved = solve()
    assert meet(solved) is solved
    changed = {**solved, "model": {**solved["model"], "n_layers": 8}}
    assert meet(changed) is changed
    for config in (default, default | {"budget": None}, default | {"budget": {"name": "parms"}}):
        assert meet(config) is config


def refusal(make, changes=(), **budget):
    with pytest.raises(ConfigError) as caught:
        make(changes, **budget)
    (problem,) = caught.value.problems
    return problem


def test_a_target_between_two_numbers_is_refused_with_both(solve):
    problem = refusal(solve, solve="model.n_layers")
    layer = attention_weights() + 3 * D * 344 + 2 * D
    low, high = (f"{V * D + count * layer + D:,} parameters at {count}" for count in (5, 6))
    assert problem.path == "budget.target" and problem.found == "1,000,000"
    assert f"within 1% of it; model.n_layers gives {low} and {high}" in problem.rule
    keys = ["model.n_layers", "model.ffn.d_ff"]
    width = round((1_000_000 - V * D - D - 5 * (attention_weights() + 2 * D)) / (5 * 3 * D))
    assert f"budget.solve=[{','.join(keys)}], which gives " in problem.fix and f"at {keys[1]}={width}" in problem.fix
    assert solve(solve=keys)["budget"]["solved"] == [5, width]  # what it says to write does meet it
    assert solve(solve="model.n_layers", tolerance=0.1)["model"]["n_layers"] == 5


def test_a_target_below_all_is_refused(solve):
    problem = refusal(solve, target=1000)
    assert f"{params(1):,} parameters at 1, the smallest" in problem.rule


def test_a_key_that_costs_nothing_is_refused(solve):
    problem = refusal(solve, name="state_bytes", target="1MiB")
    assert "model.ffn.d_ff gives 262,144 state bytes at 344; a larger one costs no more" in problem.rule
    assert "budget.solve=model.n_layers, which gives 1,048,576 at model.n_layers=16" in problem.fix


def test_a_key_that_can_grow_no_more_is_refused(solve):
    problem = refusal(solve, solve="model.attention.n_kv_heads", name="state_bytes", target="1MiB")
    assert "524,288 state bytes at 4; a larger one isn't possible" in problem.rule


@pytest.mark.parametrize(
    ("key", "fix"),
    [
        ("model.fnn.d_ff", "budget.solve=model.ffn.d_ff"),
        ("model.ffn.d_fff", "budget.solve=model.ffn.d_ff"),
        ("model.ffn.activation", "budget.solve="),
        ("model.pattern.x", "budget.solve="),
        ("model.tie_embeddings", "budget.solve="),
        ("model.vocab_size", "model.d_model, model.n_layers"),
        ("model.train_length", "model.d_model, model.n_layers"),
    ],
)
def test_a_key_that_is_no_size_of_the_model_is_refused(solve, key, fix):
    problem = refusal(solve, solve=key)
    assert problem.path == "budget.solve" and problem.found == repr(key)
    assert fix in problem.fix


def test_faults_of_the_config_itself_are_told_as_they_are(solve):
    assert refusal(solve, {"n_headz": 3}).path == "model.n_headz"
    problem = refusal(solve, {"d_model": 34})
    assert problem.path == "model.attention.n_heads" and "n_heads must divide d_model=34" in problem.rule


def test_a_target_far_away_is_looked_for_from_there(solve):
    problem = refusal(solve, {"ffn.d_ff": "???"}, target="10M")
    assert "a larger one than 1024 is not tried" in problem.rule and problem.fix.startswith("model.ffn.d_ff=1024, ")
    width = solve({"ffn.d_ff": 1024}, target="10M")["model"]["ffn"]["d_ff"]
    assert params(width) == pytest.approx(10e6, rel=0.01)
