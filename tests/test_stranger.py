"""What the README promises: two components that aren't there yet take one Python file and one YAML each, no edit."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
POSITION = '''
"""A learned number per head and distance, added to the scores."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from builder.component import Config as BaseConfig
from builder.component import Site
from builder.components.position import Position, reach
from builder.finding import Finding, Status
from builder.model.bias import Bias
from builder.model.positions import Positions
from builder.registry import register


@register("position", "head_distance")
class HeadDistance(Position):
    """s_ts + B[h, min(t - s, R - 1)], a table B (H, R) of parameters."""

    roles = {"weight": "bias"}

    class Config(BaseConfig):
        """`distances` is R: those further away share the last number."""

        name: str = "head_distance"
        distances: PositiveInt = 16

    def __init__(self, config: HeadDistance.Config, site: Site):
        super().__init__(config, site)
        self.weight = nn.Parameter(torch.zeros(site.n_heads or 1, config.distances))  # (H, R)

    def bias(self, queries: Positions, keys: Positions) -> Bias:
        return Bias(self.at, len(self.weight), queries, keys)

    def at(self, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """The number of one head for one distance."""
        return self.weight[head, (query - key).abs().clamp(max=self.weight.shape[1] - 1)]

    @classmethod
    def check(cls, config: HeadDistance.Config, site: Site) -> Iterable[Finding]:
        rule = "distances past the table share its last number"
        yield Finding(Status.PASS, 3, "distances", f"{config.distances} distances, {reach(site)}", rule)
'''
ATTENTION = '''
"""Grouped-query attention whose heads are gated by what the query's token says."""

from __future__ import annotations

import torch
from torch import Tensor

from builder.component import Site
from builder.components.attention.gqa import GQA
from builder.model.context import Context
from builder.model.linear import Linear
from builder.registry import register


@register("attention", "gated_heads")
class GatedHeads(GQA):
    """concat(sigmoid(x w_h + b_h) Z_h) W_O: a gate per head, from the input of the layer (Qiu et al. 2025)."""

    class Config(GQA.Config):
        """The knobs of grouped-query attention."""

        name: str = "gated_heads"

    def __init__(self, config: GatedHeads.Config, site: Site):
        super().__init__(config, site)
        self.gate = Linear(site.d_model, self.heads, bias=True)

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        gated = self.read(x, ctx) * torch.sigmoid(self.gate(x))[..., None]  # (B, T, H, E)
        return self.o(gated.flatten(-2))  # (B, T, D)
'''
FILES = {
    "builder/components/position/head_distance.py": POSITION,
    "builder/components/attention/gated_heads.py": ATTENTION,
    "conf/model/position/head_distance.yaml": "# A learned number per head and distance.\nname: head_distance\n",
    "conf/model/attention/gated_heads.yaml": "# Grouped-query attention with a gate per head.\nname: gated_heads\n",
}
MODEL = ["model/attention=gated_heads", "model/position=head_distance", "model.attention.n_heads=2", "model.n_layers=2"]
MODEL += ["model.d_model=16", "model.ffn.d_ff=32", "model.train_length=16", "model.deploy_length=32"]
RUN = ["trainer=cpu", "logger=none", "data=text", "data.path=text.txt", "output.name=first", "batch.sequences=4"]
RUN += ["trainer.max_steps=4", "trainer.val_check_interval=2", "trainer.limit_val_batches=1", "schedule.warmup_steps=1"]
RUN += ["callbacks.last.every_n_steps=2", "sample.max_new_tokens=4"]


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A copy of the project with the four files in it."""
    home = tmp_path_factory.mktemp("house")
    for name in ("builder", "conf", "recipes", "tests"):
        shutil.copytree(ROOT / name, home / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "Makefile"):
        shutil.copy(ROOT / name, home / name)
    for name, text in FILES.items():
        assert not (home / name).exists(), "it is there already: it proves nothing"
        (home / name).write_text(text.lstrip())
    (home / "text.txt").write_text("the cat sat on the mat. the dog sat on the log. " * 40)
    return home


def python(house, *words):
    environment = {**os.environ, "PYTHONPATH": str(house), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *words], cwd=house, env=environment, capture_output=True, text=True)


def test_both_are_checked_trained_and_generated_with(house):
    trained = python(house, "-m", "recipes.train", *MODEL, *RUN)
    assert trained.returncode == 0, trained.stdout + trained.stderr
    run = house / "outputs/main/first"
    report = json.loads((run / "checklist.json").read_text())
    assert report["ok"] and {"PASS"} == {finding["status"] for finding in report["findings"]}
    told = "\n".join(f"{finding['path']} {finding['found']} {finding['rule']}" for finding in report["findings"])
    assert "16 distances" in told and "FLOPs of a small copy" in told and "padding changes nothing" in told
    written = python(house, "-m", "recipes.generate", f"run={run}", "prompt=the cat", "max_new_tokens=4", "seed=0")
    assert written.returncode == 0 and written.stdout, written.stderr


def test_the_tests_find_both(house):
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "gated_heads or head_distance"]
    places = ["tests/test_yaml.py", "tests/model/test_cache.py", "tests/model/test_padding.py", "tests/components"]
    found = python(house, *words, *places)
    assert found.returncode == 0, found.stdout[-4000:]
    assert int(found.stdout.rsplit(" passed", 1)[0].split()[-1]) >= 12, "the tests over the registry found them"


def test_the_house_asks_for_the_yaml(house):
    yaml = house / "conf/model/position/head_distance.yaml"
    text = yaml.read_text()
    yaml.unlink()
    try:
        found = python(
            house, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_house.py", "-k", "has_its_yaml"
        )
    finally:
        yaml.write_text(text)
    assert found.returncode == 1 and "head_distance" in found.stdout
