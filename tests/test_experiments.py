"""The experiments that ship: what each says of itself, whose points pass the checklist, and what they hold equal."""

from functools import cache

import pytest
import yaml

from builder import check, compose, ledger, load
from builder.compose import CONF
from builder.spec import RunSpec
from builder.sweeps.axes import as_words, points
from builder.sweeps.spec import SweepSpec

EXPERIMENTS = sorted(file.stem for file in (CONF / "experiment").glob("*.yaml"))
SWEEPS = sorted(file.stem for file in (CONF / "sweep").glob("*.yaml"))
SHIPPED = {"kv_heads", "positions", "norms", "moe_vs_dense", "swiglu_vs_gelu", "recall", "sentences"}


def words(sweep: str) -> list[list[str]]:
    """The overrides of each point of conf/sweep/<sweep>.yaml."""
    axes = SweepSpec.model_validate(yaml.safe_load((CONF / "sweep" / f"{sweep}.yaml").read_text("utf-8")))
    return [as_words(point) for point in points([], axes, lambda *_: False)]


@cache
def specs(sweep: str) -> tuple[RunSpec, ...]:
    """The runs of a sweep that are alike but for their seed, once each."""
    chosen = [tuple(word for word in point if not word.startswith("seed=")) for point in words(sweep)]
    return tuple(load(compose([f"experiment={sweep}", *point])) for point in dict.fromkeys(chosen))


def says(name: str) -> dict[str, str]:
    """What stands on top of an experiment: its comment lines, by what they begin with."""
    lines = (CONF / "experiment" / f"{name}.yaml").read_text("utf-8").splitlines()
    comments = [line.removeprefix("# ") for line in lines if line.startswith("#")]
    kinds = {"command": "python -m recipes.train", "expected": "Expected: "}
    return {kind: line for kind, start in kinds.items() for line in comments if line.startswith(start)}


def test_all_that_is_promised_is_there():
    assert set(SWEEPS) >= SHIPPED and set(EXPERIMENTS) >= SHIPPED | {
        "nanogpt_cpu",
        "shakespeare_cpu",
        "reverse",
        "gettext",
    }
    assert set(SWEEPS) <= set(EXPERIMENTS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_says_how_it_is_run_and_what_comes_of_it(name):
    said = says(name)
    assert f"experiment={name}" in said["command"]
    assert any(character.isdigit() for character in said["expected"])
    if name in SWEEPS:
        assert said["command"].startswith("python -m recipes.train -m ") and f"sweep={name}" in said["command"]


@pytest.mark.parametrize("name", SWEEPS)
def test_its_points_are_different_runs_that_pass(name):
    runs = specs(name)
    assert len({spec.hash for spec in runs}) == len(runs) > 1
    for spec in runs:
        report = check(spec, probes=False)
        assert report.ok, str(report)
        assert spec.output.experiment == name


def test_a_table_that_ends_is_refused():
    report = check(load(compose(["experiment=positions", "model/position=learned"])), probes=False)
    assert [finding.path for finding in report.failures] == ["model.position.length"]


@pytest.mark.parametrize("name", SWEEPS)
def test_its_points_read_the_same_tokens(name):
    (read,) = {(spec.rows * spec.model.train_length * spec.steps, spec.model.train_length) for spec in specs(name)}
    assert read[0] > 0


def spread(name, cost):
    """How far apart the costs of its points are, as a share of the least."""
    costs = [getattr(ledger(spec.model), cost) for spec in specs(name)]
    return max(costs) / min(costs) - 1


def test_kv_heads_have_equal_parameters_and_unequal_states():
    assert [spec.model.slots["attention"].kv_heads for spec in specs("kv_heads")] == [8, 2, 1]  # type: ignore[attr-defined]
    assert spread("kv_heads", "params") < 0.01
    assert spread("kv_heads", "state_bytes_per_token") == 7
    configs = [
        compose(["experiment=kv_heads", f"model/attention={name}"]) | {"budget": None} for name in ("mha", "mqa")
    ]
    counts = [ledger(load(config).model).params for config in configs]
    assert counts[0] / counts[1] > 1.01  # without the budget


def test_moe_has_the_active_parameters_of_the_dense_one():
    assert spread("moe_vs_dense", "active_params") < 0.01
    assert spread("moe_vs_dense", "params") > 1


def test_swiglu_and_gelu_are_equal_to_the_last_parameter():
    widths = {spec.model.slots["ffn"].name: spec.model.slots["ffn"].d_ff for spec in specs("swiglu_vs_gelu")}  # type: ignore[attr-defined]
    (width,) = {spec.model.d_model for spec in specs("swiglu_vs_gelu")}
    assert widths == {"glu": 8 * width / 3, "mlp": 4 * width}
    assert spread("swiglu_vs_gelu", "params") == 0


def test_positions_are_trained_on_64_and_read_at_256():
    for spec in specs("positions"):
        assert (spec.model.train_length, spec.model.deploy_length) == (64, 256)
        assert "deploy_length" in spec.callbacks
    schemes = {spec.model.position.name for spec in specs("positions")}
    every = {file.stem for file in (CONF / "model" / "position").glob("*.yaml")}
    assert schemes | {"learned"} == every


def test_norms_cross_placement_with_depth():
    found = {(spec.model.block.name, spec.model.n_layers) for spec in specs("norms")}
    blocks, depths = {block for block, _ in found}, {depth for _, depth in found}
    assert len(found) == len(blocks) * len(depths) and len(depths) > 1 and {"pre_norm", "post_norm"} < blocks


def test_recall_crosses_mixers_of_near_equal_parameters_with_pairs():
    found = [(next(iter(spec.model.slots.values())).name, spec.data.n_pairs) for spec in specs("recall")]  # type: ignore[attr-defined]
    mixers, pairs = {name for name, _ in found}, {count for _, count in found}
    assert len(found) == len(mixers) * len(pairs) and "gqa" in mixers and len(mixers) > 3 and len(pairs) > 2
    assert {(spec.model.d_model, spec.model.n_layers, spec.steps) for spec in specs("recall")} == {(64, 2, 800)}
    assert spread("recall", "params") < 0.15


def test_sentences_pool_one_network_in_two_ways_beside_an_encoder_of_attention():
    heads = [(*spec.model.slots, spec.model.head.pooling.name) for spec in specs("sentences")]  # type: ignore[attr-defined]
    assert heads == [("recurrent", "mean"), ("recurrent", "attention"), ("attention", "ffn", "mean")]
    assert spread("sentences", "params") < 0.25


def test_an_encoder_decoder_that_reverses_has_at_most_a_million_parameters():
    assert ledger(load(compose(["experiment=reverse"])).model).params <= 1e6
