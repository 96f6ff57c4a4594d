"""Metrics on disk: metrics.jsonl, one line for each time something was logged, and the axes that runs share."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from builder.whole import write_whole

HIGHER = {"accuracy", "acc", "f1", "bleu", "mfu", "tokens_per_second", "samples_per_second", "entropy", "r2"}
"""Metrics of which more is better, by the last part of their name."""

LOWER = {"loss", "perplexity", "bits_per_byte"}
"""Metrics of which less is."""


def better(metric: str) -> Literal["min", "max"] | None:
    """Which end of a metric is the better one, by the last part of its name; None where that doesn't say."""
    last = metric.rpartition("/")[2]
    return "max" if last in HIGHER else "min" if last in LOWER else None


@dataclass(frozen=True)
class Axes:
    """What one optimizer step amounts to: tokens read, and FLOPs of forward and backward pass."""

    tokens_per_step: int
    flops_per_token: int

    def at(self, step: int) -> dict[str, int]:
        """The axes `step`, `tokens` and `flops` after that many steps."""
        tokens = step * self.tokens_per_step
        return {"step": step, "tokens": tokens, "flops": 3 * tokens * self.flops_per_token}


def finite(value: float) -> float | None:
    """The value, or None where it is infinite or no number, which JSON can't say."""
    return value if math.isfinite(value) else None


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics.jsonl; a last line cut short by a crash is left out."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def rewind(path: Path, step: int) -> None:
    """Keeps the rows up to `step`, so that a resumed run logs no step twice."""
    kept = [row for row in read_metrics(path) if row["step"] <= step] if path.exists() else []
    write_whole(path, "".join(json.dumps(row) + "\n" for row in kept))
