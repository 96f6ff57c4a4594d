"""Plans: each point composed as Hydra would, judged, told apart, numbered and costed."""

import json
import random
from collections import Counter

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

import builder.sweeps.costs
from builder import compose, ledger
from builder.compose import CONF, prepare
from builder.errors import ArchlabError
from builder.experiments.folder import RunFolder
from builder.memory import forecast
from builder.sweeps import plan, render
from builder.sweeps.axes import points
from builder.sweeps.composer import Composer
from builder.sweeps.costs import costed
from builder.sweeps.run import _launch
from builder.sweeps.spec import SweepSpec
from tests.tiny_run import overrides


@pytest.fixture
def composer():
    prepare()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        yield Composer(loader, "train")


@pytest.fixture
def planned(composer, tmp_path):
    """Plans the tiny run with these words, whose commas make axes."""

    def make(*words, **spec):
        made = points(overrides(tmp_path, *words), SweepSpec(**spec), composer.holds)
        return plan.make("sweep", made, composer.compose, lambda: None)

    return make


WORDS = [
    ("model.n_layers=3", "optimizer.lr=1e-3"),
    ("model/attention=mha", "model.n_layers=3", "model.attention.n_heads=4"),
    ("model.n_layers=3", "model/ffn=mlp", "model/position=alibi", "model.position={name: rope}"),
    ("model/attention@model.local=gqa", "model.local.n_heads=4", "model.pattern=[local+ffn,attention+ffn]"),
    ("arch=gpt2", "model.n_layers=2"),
    ("experiment=nanogpt_cpu", "seed=3", "data=python_docs"),
    ("model.attention.bias=[q,k]",),
]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_a_point_is_composed_as_the_command_line_would(words, composer):
    point = tuple(tuple(word.split("=", 1)) for word in words)
    for _ in range(2):  # the second time from what was kept
        assert composer.compose(point) == compose(words)
    other = composer.compose((*point, ("seed", "7")))
    assert other != compose(words) and other["seed"] == 7


def test_a_point_that_cannot_be_composed_says_why(composer):
    for point, text in [((("model/ffn", "none_such"),), "glu"), ((("model.d_model", "${nope}"),), "nope")]:
        with pytest.raises(ArchlabError, match=text):
            composer.compose(point)


def test_what_a_point_holds_is_asked_of_its_config(composer):
    assert composer.holds((), "model/ffn", "glu") and composer.holds(
        (), "model.n_layers", compose()["model"]["n_layers"]
    )
    assert composer.holds((("model/ffn", "mlp"),), "model/ffn", "mlp")
    assert not composer.holds((("model/ffn", "mlp"),), "model/ffn", "glu")
    assert not composer.holds((("model/ffn", "none_such"),), "model.n_layers", 4)


class Recorder:
    """A launcher that launches nothing."""

    def launch(self, batch, initial_job_idx):
        self.batch = batch


def test_200_points_of_which_30_are_invalid_and_10_the_same_as_others(planned, tmp_path):
    right = [{"model.n_layers": layers, "seed": seed} for layers in range(1, 9) for seed in range(20)]
    wrong = [{"model.attention.n_kv_heads": 3, "seed": seed} for seed in range(10)]  # of 2 heads
    wrong += [{"model.d_model": 3, "seed": seed} for seed in range(10)]
    wrong += [{"model/ffn": "none_such", "seed": seed} for seed in range(5)]
    wrong += [{"model.ffn.d_fff": 8, "seed": seed} for seed in range(5)]
    same = [{"seed": seed, "model.n_layers": 4, "batch.micro_batch": 2} for seed in range(10)]
    listed = [*right, *wrong, *same]
    random.Random(0).shuffle(listed)
    made = planned(listed=listed)
    assert Counter(point.status for point in made.points) == {"planned": 160, "invalid": 30, "duplicate": 10}
    assert [point.job for point in made.jobs] == list(range(160)) and len({point.hash for point in made.jobs}) == 160
    said = " ".join(point.reason for point in made.of("invalid"))
    assert [said.count(key) for key in ("n_kv_heads: found 3", "none_such", "d_fff: found 8")] == [10, 5, 5]
    assert all(point.hash == made.jobs[point.same_as].hash for point in made.of("duplicate"))
    folder, launcher = tmp_path / "out" / "main" / "sweep", Recorder()
    made.write(folder, words=[], spec={})
    _launch(folder, launcher)  # and what is handed to the launcher
    places = [word for words in launcher.batch for word in words if word.startswith("++output.name=")]
    assert places == [f"++output.name=sweep/{job}" for job in range(160)]
    for job in (3, 77):
        RunFolder(folder / str(job)).summarise("completed")
    _launch(folder, launcher)
    assert len(launcher.batch) == 158


def test_what_differs_in_its_callbacks_is_asked_for_twice(planned):
    """Whether they act or watch: what a watcher logs is asked for too."""
    stops = ("callbacks=[default,early_stopping]", "callbacks.early_stopping.patience=1,3,3")
    for words, jobs in ((stops, 2), (("callbacks=default,[default,deploy_length]",), 2)):
        assert len(planned(*words).jobs) == jobs


def test_points_that_resolve_to_the_same_run_are_launched_once(planned):
    made = planned("model.attention.n_kv_heads=2,null", "seed=0,1", "compile=false,true", "model.attention.n_heads=2")
    assert Counter(point.status for point in made.points) == {"planned": 4, "duplicate": 4}
    for point in made.of("duplicate"):  # how a run is computed makes no other run of it
        first = made.jobs[point.same_as]
        assert first.hash == point.hash and set(first.overrides) ^ set(point.overrides) == {
            *("compile=False", "compile=True")
        }


def test_each_point_has_the_reason_that_refuses_it(planned):
    made = planned("model.n_layers=0,1", "model.attention.n_heads=3,2", "model.d_model=16")
    reasons = {point.apart: point.reason for point in made.points}
    assert "model.n_layers: found 0" in reasons["model.n_layers=0", "model.attention.n_heads=2"]
    both = reasons["model.n_layers=0", "model.attention.n_heads=3"]
    assert "model.n_layers: found 0" in both and "n_kv_heads" in both
    assert [point.status for point in made.points].count("planned") == 1


def test_the_costs_are_those_of_the_run(planned):
    made = planned("model.n_layers=1,3", "trainer.max_steps=12", "batch.sequences=4")
    for point in made.jobs:
        spec = made.specs[point.asks]
        costs = ledger(spec.model)
        assert (point.params, point.flops_per_token) == (costs.params, costs.flops_per_token)
        assert point.flops == 3 * costs.flops_per_token * 12 * 4 * 16
        assert spec.model.n_layers == int(point.apart[0][-1])
    assert made.jobs[0].flops < made.jobs[1].flops


def test_memory_is_forecast_and_time_measured(planned):
    made = costed(planned("model.n_layers=1,3", "seed=0,1"), lambda: None)
    assert [point.memory for point in made.jobs] == [forecast(made.specs[point.asks]).peak.total for point in made.jobs]
    seconds = [point.seconds for point in made.jobs]
    assert seconds[0] == seconds[1] < seconds[2]  # by FLOPs
    assert seconds[2] / seconds[0] == pytest.approx(made.jobs[2].flops / made.jobs[0].flops)


def test_what_does_not_fit_the_device_is_invalid_and_its_duplicates_with_it(planned, monkeypatch):
    made = planned("model.n_layers=1,3", "compile=false,blocks")
    small = forecast(made.specs[made.jobs[0].asks]).peak.total
    monkeypatch.setattr(builder.memory.device, "memory", lambda: small + 1)
    made = costed(made, lambda: None)
    assert [point.status for point in made.points] == ["planned", "invalid", "duplicate", "invalid"]
    assert [point.job for point in made.points] == [0, None, None, None]
    assert "batch: found" in made.points[1].reason and made.points[3].reason == made.points[1].reason
    assert made.points[2].same_as == 0


def test_time_that_runs_out_leaves_the_smaller_points_without_a_forecast(planned):
    made = costed(planned("model.n_layers=1,3"), lambda: None, patience=0)
    assert [point.memory for point in made.jobs] == [None, None]
    assert "not forecast" in render._cells(made.jobs[0])


def test_a_plan_is_written_and_read_back(planned, tmp_path):
    made = planned("model.n_layers=0,1,2", "seed=0,1", "compile=false,true")
    made.write(tmp_path, words=["a=1"], spec={})
    assert plan.points_of(plan.read(tmp_path)) == made.points
    render.write(made, tmp_path)
    text = (tmp_path / "plan.md").read_text()
    for point in made.points:
        assert " ".join(point.apart) in text
    assert "12 points: 4 jobs, 4 invalid, 4 duplicate" in text and text.count("model.n_layers: found 0") == 4


@pytest.mark.parametrize("text", ["", "{", "{}", '{"points": 3}', "[]"])
def test_a_folder_without_a_whole_plan_is_refused(text, tmp_path):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(ArchlabError, match=r"sweep.resume: found .*holds no whole plan.json"):
        plan.read(tmp_path)


def test_what_all_points_share_sets_none_apart(planned):
    made = planned("model.n_layers=1,2", "seed=5")
    assert [point.apart for point in made.points] == [("model.n_layers=1",), ("model.n_layers=2",)]
    assert all("seed=5" in point.overrides for point in made.points)
    json.dumps([point.apart for point in made.points])


def test_what_callbacks_watch_is_judged_at_each_point(planned):
    made = planned("callbacks.best.monitor=val/los,val/loss")
    assert [point.status for point in made.points] == ["invalid", "planned"]
    assert "fix: callbacks.best.monitor=val/loss" in made.points[0].reason
