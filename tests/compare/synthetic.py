"""Run folders as `recipes.train` leaves them, without training: any config, any numbers, any end."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from builder import compose, load
from builder.cli import main
from builder.compare import CompareSpec, Comparison, compare
from builder.compare.sources import gather
from recipes.compare import job

STEPS = 100
CORPUS = "c" * 64
COSTS = {"params": 1000, "active_params": 1000, "flops_per_token": 2000, "state_bytes_per_token": 64}
TINY = ["data=text", "data.path=text.txt", "trainer=cpu", "logger=none", f"trainer.max_steps={STEPS}"]
TOKENS = 1024
"""Tokens that a step reads."""

Curve = Mapping[int, float | None]
"""A value by step; None where it was no number."""


@cache
def _base() -> dict[str, Any]:
    return load(compose(TINY)).to_dict()


def config(**values: Any) -> dict[str, Any]:
    """A whole config with other values by path, `model__n_layers=2` for model.n_layers."""
    made = deepcopy(_base())
    for path, value in values.items():
        *parents, key = path.split("__")
        node = made
        for parent in parents:
            node = node[parent]
        node[key] = value
    return made


def write(
    folder: Path,
    loss: Sequence[float | None] | Curve = (3.0, 2.0),
    *,
    seed: int = 0,
    status: str = "completed",
    corpus: str | None = CORPUS,
    costs: Mapping[str, int] | None = None,
    more: Mapping[str, Curve] | None = None,
    summary: Mapping[str, Any] | None = None,
    **values: Any,
) -> Path:
    """A run whose val/loss has these values, by step or spread evenly over all steps; `more` are other metrics."""
    made = config(seed=seed, **values)
    spec = load(made)
    folder.mkdir(parents=True)
    header = f"# The frozen config of this run.\n# hash: {spec.hash}\n"
    (folder / "config.yaml").write_text(header + yaml.safe_dump(spec.to_dict(), sort_keys=False))
    spent = {**COSTS, **(costs or {})}
    known = {"ledger": {f"ledger/{name}": count for name, count in spent.items()}}
    known |= {"corpus": corpus} if corpus else {}
    (folder / "summary.json").write_text(json.dumps({"status": status, "reason": None} | known | dict(summary or {})))
    curves = {"val/loss": _curve(loss), **(more or {})}
    rows = []
    for step in sorted({step for curve in curves.values() for step in curve}):
        tokens = step * TOKENS
        axes = {"step": step, "tokens": tokens, "flops": 3 * tokens * spent["flops_per_token"]}
        rows.append(axes | {name: curve[step] for name, curve in curves.items() if step in curve})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def _curve(loss: Sequence[float | None] | Curve) -> Curve:
    if isinstance(loss, Mapping):
        return loss
    return {round(STEPS * (place + 1) / len(loss)): value for place, value in enumerate(loss)}


def compared(root: Path, **knobs: Any) -> Comparison:
    """The comparison of everything below a folder."""
    spec = CompareSpec(runs=str(root), **knobs)
    return compare(gather(spec), spec)


def call(*words: str) -> int:
    """Runs the command in this process; gives its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["compare", *words])
        try:
            main(job, "compare")
        except SystemExit as end:
            assert isinstance(end.code, int)
            return end.code
    return 0
