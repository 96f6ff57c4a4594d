"""Seeds are grouped, what differs is named, and only that; a seed that ran twice counts once."""

import json

import pytest

from builder import ArchlabError
from builder.compare import CompareSpec
from builder.compare.apart import shortened
from builder.compare.groups import CORPUS, group
from builder.compare.reading import read
from builder.compare.sources import gather
from tests.compare.synthetic import config, write


def test_seeds_are_one_configuration_and_only_what_differs_is_named(tmp_path):
    for seed in (0, 1, 2):
        for layers in (2, 4):
            write(tmp_path / f"{layers}-{seed}", seed=seed, model__n_layers=layers)
    found = group(read(str(tmp_path)))
    assert [(item.differing, len(item.runs)) for item in found] == [
        ({"model.n_layers": 2}, 3),
        ({"model.n_layers": 4}, 3),
    ]
    assert [item.label for item in found] == ["n_layers=2", "n_layers=4"]


def test_another_value_is_another_configuration(tmp_path):
    write(tmp_path / "a", seed=0)
    write(tmp_path / "b", seed=1, optimizer__lr=2e-3)
    assert len(group(read(str(tmp_path)))) == 2


def test_where_a_run_is_written_and_how_it_is_computed_and_watched_makes_no_other(tmp_path):
    watchers = {
        "deploy_length": {"_target_": "builder.training.callbacks.deploy_length.DeployLength"},
        "rates": {"_target_": "lightning.pytorch.callbacks.LearningRateMonitor"},
    }
    write(tmp_path / "a", seed=0, output__experiment="one", sample__prompt="x")
    how = {"batch__micro_batch": 2, "compile": "blocks", "callbacks": watchers}
    write(tmp_path / "b", seed=1, output__experiment="two", **how)
    (only,) = group(read(str(tmp_path)))
    assert only.differing == {}


@pytest.mark.parametrize("target", ["EarlyStopping", "EMAWeightAveraging"])
def test_a_callback_that_acts_makes_another_configuration_and_is_shown(target, tmp_path):
    """Not known by its name: all but those that only watch or save."""
    write(tmp_path / "a", seed=0)
    knobs = {"monitor": "val/loss", "patience": 3} if target == "EarlyStopping" else {"decay": 0.5}
    for seed in (0, 1):
        acts = {"x": {"_target_": f"lightning.pytorch.callbacks.{target}", **knobs}}
        write(tmp_path / f"b{seed}", seed=seed, callbacks=config()["callbacks"] | acts)
    plain, other = group(read(str(tmp_path)))
    assert [run.name for run in other.counted] == ["b0", "b1"]
    assert set(other.differing) == {"callbacks.x._target_", *(f"callbacks.x.{knob}" for knob in knobs)}
    assert (plain.label, other.label) == ("a", f"x={target}")


def test_a_seed_that_ran_twice_counts_once(tmp_path):
    """Two runs of one seed are equal: counted twice, they would make the interval too small."""
    write(tmp_path / "a", seed=0)
    write(tmp_path / "b", seed=0)
    write(tmp_path / "c", seed=1)
    (only,) = group(read(str(tmp_path)))
    assert [run.name for run in only.counted] == ["b", "c"]
    assert [run.name for run in only.repeats] == ["a"]


def test_another_text_is_another_configuration(tmp_path):
    write(tmp_path / "a", seed=0, corpus="a" * 64)
    write(tmp_path / "b", seed=1, corpus="b" * 64)
    write(tmp_path / "c", seed=2, corpus=None, status="failed")
    found = group(read(str(tmp_path)))
    assert [[run.name for run in item.runs] for item in found] == [["a", "c"], ["b"]]
    assert [item.differing for item in found] == [{CORPUS: "aaaaaaaa"}, {CORPUS: "bbbbbbbb"}]


def test_a_job_without_a_config_is_what_another_seed_of_it_is(tmp_path):
    """Whether it failed before it was a run or never began: its row is theirs, and lacks a seed."""
    words = [[f"model.n_layers={layers}", f"seed={seed}"] for layers in (2, 3) for seed in (0, 1, 2)]
    points = [{"job": n, "overrides": each, "apart": each} for n, each in enumerate(words)]
    for n in (2, 3, 4):
        write(tmp_path / str(n), seed=n % 3, model__n_layers=2 + n // 3)
    (tmp_path / "1").mkdir()
    (tmp_path / "1/summary.json").write_text('{"status": "failed", "reason": "no memory"}')
    (tmp_path / "plan.json").write_text(json.dumps({"points": points}))
    found = group(read(str(tmp_path)))
    assert [sorted(run.name for run in item.runs) for item in found] == [["0", "1", "2"], ["3", "4", "5"]]
    assert [item.differing for item in found] == [{"model.n_layers": 2}, {"model.n_layers": 3}]


def test_a_default_that_a_config_does_not_state_is_no_difference(tmp_path):
    """As of an older version, which had no such key."""
    write(tmp_path / "a", seed=0)
    old = write(tmp_path / "b", seed=1) / "config.yaml"
    text = old.read_text()
    assert "guard: null\n" in text
    old.write_text(text.replace("guard: null\n", ""))
    (only,) = group(read(str(tmp_path)))
    assert only.notes == ()


def test_a_config_that_was_changed_after_the_run_is_marked(tmp_path):
    config = write(tmp_path / "a") / "config.yaml"
    config.write_text(config.read_text().replace("lr: 0.001", "lr: 0.002"))
    (only,) = group(read(str(tmp_path)))
    assert only.notes == ("a: config.yaml was changed after the run",)


def test_a_config_that_cannot_be_loaded_is_compared_as_it_stands(tmp_path):
    for name, seed in (("a", 0), ("b", 1)):
        config = write(tmp_path / name, seed=seed) / "config.yaml"
        config.write_text(config.read_text().replace("model:\n", "model:\n  wings: 2\n"))
    write(tmp_path / "c", seed=0)
    found = group(read(str(tmp_path)))
    assert [len(item.runs) for item in found] == [2, 1]
    assert found[0].differing == {"model.wings": 2} and found[1].differing == {"model.wings": "-"}
    assert "can't load" in found[0].notes[0]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["model.n_layers"], ["n_layers"]),
        (["model.attention.n_heads", "model.local.n_heads"], ["attention.n_heads", "local.n_heads"]),
        (["optimizer.name", "model.norm.name"], ["optimizer.name", "norm.name"]),
    ],
)
def test_keys_have_short_names_that_no_other_has(paths, names):
    assert list(shortened(paths).values()) == names


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("[model.n_layers=2]", {"a", "b"}),
        ("[model.n_layers=2,seed=1]", {"b"}),
        ("model.n_layers=2|4", {"a", "b", "c"}),
        ("[optimizer.lr=1e-3]", {"a", "b", "c"}),
        ("[model.pattern=[attention+ffn]]", {"a", "b", "c"}),
        ("[output.tags=night]", {"c"}),
        ("[model.tie_embeddings=true,seed=0]", {"a", "c"}),
        ("[model.n_layers=2.0]", {"a", "b"}),
    ],
)
def test_where_keeps_the_runs_that_have_the_values(where, left, tmp_path):
    write(tmp_path / "a", seed=0, model__n_layers=2)
    write(tmp_path / "b", seed=1, model__n_layers=2)
    write(tmp_path / "c", seed=0, model__n_layers=4, output__tags=["night"])
    assert {run.name for run in gather(CompareSpec(runs=str(tmp_path), where=where))} == left


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("[model.n_layer=2]", "did you mean model.n_layers"),
        ("[model.n_layers=7]", "none of 1 runs"),
        ("[seed=true]", "none of"),
    ],
)
def test_where_that_leaves_nothing_says_so(where, said, tmp_path):
    write(tmp_path / "a", seed=1, model__n_layers=2)
    with pytest.raises(ArchlabError, match=said):
        gather(CompareSpec(runs=str(tmp_path), where=where))
