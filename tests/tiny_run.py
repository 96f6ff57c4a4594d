"""A run small enough to train in a test: its overrides, and ways to look at it and to disturb it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from builder import check, compose, load
from builder.experiments.folder import RunFolder
from builder.experiments.train import resume, train
from builder.spec import RunSpec
from builder.training.module import Training

torch.set_num_threads(1)  # on tensors this small, threads only wait for each other

TEXT = "the cat sat on the mat. the dog sat on the log. " * 40
TINY = [
    "data=text",
    "trainer=cpu",
    "logger=none",
    "compile=false",
    "model.d_model=16",
    "model.n_layers=1",
    "model.train_length=16",
    "model.deploy_length=32",
    "model.attention.n_heads=2",
    "model.ffn.d_ff=32",
    "batch.sequences=4",
    "trainer.max_steps=12",
    "trainer.val_check_interval=4",
    "trainer.log_every_n_steps=3",
    "trainer.limit_val_batches=2",
    "callbacks.last.every_n_steps=4",
    "schedule.warmup_steps=2",
    "sample.max_new_tokens=4",
    "sample.seed=0",
]
MOE = [
    "model/ffn@model.moe=moe",
    "model.pattern=[attention+moe,attention+ffn,attention+moe]",
    "model.n_layers=3",
    "model.moe.n_experts=4",
    "model.moe.expert.d_ff=16",
]
"""Gives it three layers: experts, four of them, in the first and the last."""


def overrides(folder: Path, *more: str) -> list[str]:
    """The overrides of the tiny run, its text and its outputs below `folder`; `more` come last and win."""
    text = folder / "text.txt"
    if not text.exists():
        text.write_text(TEXT, encoding="utf-8")
    return [*TINY, f"data.path={text}", f"output.root={folder}/out", *more]


def spec_of(folder: Path, *more: str) -> RunSpec:
    """The RunSpec of the tiny run."""
    return load(compose(overrides(folder, *more)))


def trained(folder: Path, *more: str) -> RunFolder:
    """The tiny run, trained, without saying so."""
    return train(spec_of(folder, *more), Console(quiet=True))


def resumed(path: Path) -> RunFolder:
    """A run gone on with, without saying so."""
    return resume(path, Console(quiet=True))


def only_run(folder: Path) -> Path:
    """The folder of the one run that was made below `folder`."""
    (config,) = folder.glob("out/*/*/config.yaml")
    return config.parent


def rows(path: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what a clock decides."""
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if not key.startswith("perf/")} for line in lines]


def summary(path: Path) -> dict[str, Any]:
    """What summary.json says."""
    return json.loads((path / "summary.json").read_text())


def checkpoint(path: Path, name: str = "last") -> dict[str, Any]:
    """A checkpoint of a run, read as anyone would."""
    return torch.load(path / "checkpoints" / f"{name}.ckpt", weights_only=True)


def same(one: Any, other: Any) -> bool:
    """Whether two nests of tensors and plain Python are equal bit for bit."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def plant(patch: pytest.MonkeyPatch, step: int, action: Callable[[], object]) -> None:
    """Has `action` happen in the middle of optimizer step `step`, after its update and before its log line."""
    whole = Training.on_train_batch_end

    def disturbed(self: Training, *args: Any) -> None:
        if self.global_step == step:
            action()
        whole(self, *args)

    patch.setattr(Training, "on_train_batch_end", disturbed)


def without_probes(patch: pytest.MonkeyPatch) -> None:
    """Leaves out the probes of the checklist, which have tests of their own and take a second."""
    for place in ("builder.experiments.train.check", "builder.experiments.run.check"):
        patch.setattr(place, partial(check, probes=False))
