"""A sweep file for W&B's agents: what it says, and that an agent's runs work."""

import os
import re
import subprocess
import sys
from itertools import product

import pytest
import yaml

from builder import compose, load
from builder.compose import ROOT
from builder.errors import ArchlabError, ConfigError
from builder.experiments.tracking.sweep_file import sweep, written
from tests.tiny_run import overrides

GRID = ("grid", "val/loss", "minimize")


def test_what_is_swept_and_what_is_not():
    words = ["model.n_layers=2,4", "model/attention=mha,gqa", "seed=range(0,3)", "optimizer.lr=1e-4,3e-5"]
    said = sweep([*words, "tokenizer=bytes", "sample.prompt=To be, or not"], *GRID)
    assert {key: axis["values"] for key, axis in said["parameters"].items()} == {
        "model.n_layers": [2, 4],
        "model/attention": ["mha", "gqa"],
        "seed": [0, 1, 2],
        "optimizer.lr": [1e-4, 3e-5],
    }
    command = said["command"]
    assert command[:4] == ["${env}", "${interpreter}", "-m", "recipes.train"] and command[-1] == "${args_no_hyphens}"
    assert sorted(command[4:-1]) == ["sample.prompt=To be, or not", "tokenizer=bytes"]
    assert (said["method"], said["metric"]) == ("grid", {"name": "val/loss", "goal": "minimize"})
    assert (ROOT / said["program"]).is_file()


def test_every_point_reaches_hydra_as_it_was_meant():
    """As an agent writes it: `<key>=<value>`, the value as Python's str has it."""
    words = ["model.attention.window=null,8", "compile=false,true", "optimizer.lr=1e-5,2E-4"]
    words += ["schedule=constant,linear", "model.pattern=[attention+ffn],[attention]"]
    axes = yaml.safe_load(written(sweep(words, *GRID), "x.yaml"))["parameters"]
    found = {key: set() for key in ("window", "compile", "lr", "schedule", "pattern")}
    for values in product(*(axis["values"] for axis in axes.values())):
        spec = load(compose([f"{key}={value!s}" for key, value in zip(axes, values, strict=True)]))
        found["window"].add(spec.model.slots["attention"].window)
        found["compile"].add(spec.compile)
        found["lr"].add(spec.optimizer.lr)
        found["schedule"].add(spec.schedule.name)
        found["pattern"].add(spec.model.pattern)
    assert found == {
        "window": {None, 8},
        "compile": {False, True},
        "lr": {1e-5, 2e-4},
        "schedule": {"constant", "linear"},
        "pattern": {("attention+ffn",), ("attention",)},
    }


def test_an_interval_has_ends():
    said = sweep(["optimizer.lr=interval(1e-4,1e-2)"], "bayes", "val/loss", "minimize")
    assert said["parameters"] == {"optimizer.lr": {"min": 1e-4, "max": 1e-2}}


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (["seed=0"], ConfigError, r"at least one axis"),
        (["optimizer.lr=interval(1e-4,1e-2)"], ConfigError, r"optimizer\.lr.*\n.*method=random or bayes"),
        (["sweep=kv_heads", "seed=0,1"], ConfigError, r"sweep: found sweep=kv_heads"),
        (["hydra/launcher=basic", "seed=0,1"], ConfigError, r"hydra/launcher"),
        (["model.n_layerz=2,4"], ArchlabError, r"did you mean model\.n_layers"),
        (["seed=0,1,"], ArchlabError, r"seed=0,1,"),
    ],
)
def test_what_can_not_be_swept_is_refused(words, error, said):
    with pytest.raises(error, match=said):
        sweep(words, *GRID)


def test_points_that_are_invalid_are_the_agents_to_meet():
    """Two of the four points are no model; the sweep has others."""
    words = ["model.d_model=30,32", "model.attention.n_heads=5,4", "model/position=none"]
    assert len(sweep(words, *GRID)["parameters"]) == 2


@pytest.mark.slow
def test_an_agents_runs_work(tmp_path, service):
    file = tmp_path / "sweep.yaml"
    words = [word for word in overrides(tmp_path, "logger=wandb") if not word.startswith("model.n_layers")]
    command = [sys.executable, "-m", "recipes.sweep_file", f"file={file}", *words, "model.n_layers=1,2", "seed=3,4"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines()[0] == f"{file} has 2 axes, 4 points"
    service.sweep = yaml.safe_load(file.read_text())
    points = [("p1", 1, 3), ("p2", 2, 4)]
    for name, layers, seed in points:
        args = {"model.n_layers": {"value": layers}, "seed": {"value": seed}}
        service.jobs.append({"type": "run", "run_id": name, "args": args, "program": service.sweep["program"]})
    environment = os.environ | service.environment | {"WANDB_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    environment["PATH"] = f"{os.path.dirname(sys.executable)}:{environment['PATH']}"
    for muting in ("WANDB_SERVICE", "WANDB_SILENT"):
        environment.pop(muting, None)
    agent = [sys.executable, "-m", "wandb", "agent", "ent/archlab/sw1"]
    ended = subprocess.run(agent, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert service.runs.keys() == {"p1", "p2"}, ended.stderr
    for name, layers, seed in points:
        run = service.runs[name]
        assert (run.values["model"]["n_layers"], run.values["seed"]) == (layers, seed)
        assert (run.state, run.summary["status"], run.sweep) == ("finished", "completed", "sw1")
        assert run.history[-1]["step"] == 12
    kept = [re.search(r'"id": "(\w+)"', path.read_text()) for path in tmp_path.glob("out/*/*/wandb/run.json")]
    assert {found[1] for found in kept if found} == {"p1", "p2"}
