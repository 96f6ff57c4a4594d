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
    """The rows of a metrics.jsonl; lines that are damaged, such as one cut short by a crash, are left out."""
    return [row for _, row in _lines(path) if row is not None]


def rewind(path: Path, step: int) -> list[int]:
    """Keeps the rows up to `step`, so that a resumed run logs no step twice; the numbers of the lines, from 1 on, that
    are damaged and were put into <name>.damaged beside it. What a kill left of a last line isn't kept."""
    lines = _lines(path) if path.exists() else []
    lines = lines[:-1] if lines and lines[-1][1] is None else lines  # cut short, or empty after the last end of a line
    damaged = {number: text for number, (text, row) in enumerate(lines, 1) if row is None}
    if damaged:
        with damaged_of(path).open("ab") as aside:
            aside.writelines(text + b"\n" for text in damaged.values())
    kept = [row for _, row in lines if row is not None and row["step"] <= step]
    write_whole(path, "".join(json.dumps(row) + "\n" for row in kept))
    return list(damaged)


def damaged_of(path: Path) -> Path:
    """Where the damaged lines of a file are put."""
    return path.with_name(f"{path.name}.damaged")


def _lines(path: Path) -> list[tuple[bytes, dict[str, Any] | None]]:
    """Each line, with the row that it holds; None: it holds none."""
    return [(line, _row(line)) for line in path.read_bytes().split(b"\n")]


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:  # no JSON, or no text
        return None
    return row if isinstance(row, dict) and type(row.get("step")) is int else None
