"""A comparison as files for other programs: runs.csv, configurations.csv, pairs.csv, and comparison.json with all."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from builder.whole import write_whole

from .apart import shown
from .comparison import Comparison, Row
from .run import Run
from .values import Value, at, best, is_higher_better, last

COSTS = ("params", "active_params", "flops_per_token", "state_bytes_per_token")


def write(comparison: Comparison, out: Path, more: dict[str, Any] | None = None) -> list[Path]:
    """Writes the files into `out`; `more` goes into the JSON. Raises OSError."""
    tables = {
        "runs.csv": [_run(run, row, comparison) for row in comparison.rows for run in row.configuration.runs],
        "configurations.csv": [_configuration(row, comparison) for row in comparison.rows],
        "pairs.csv": _pairs(comparison),
    }
    for name, lines in tables.items():
        write_whole(out / name, _csv(lines))
    content = plain(to_dict(comparison) | (more or {}))
    write_whole(out / "comparison.json", json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return [out / name for name in (*tables, "comparison.json")]


def to_dict(comparison: Comparison) -> dict[str, Any]:
    """The comparison in plain Python; a value that is missing, or no number, is None."""
    return {
        "metric": comparison.metric,
        "by": comparison.by,
        "higher_is_better": comparison.higher,
        "ranked": comparison.ranked,
        "forced": comparison.forced,
        "refusal": comparison.refusal or None,
        "overruled": comparison.overruled or None,
        "differing_keys": list(comparison.keys),
        "matched": [asdict(match) for match in comparison.matches],
        "configurations": [
            {key: value for key, value in _configuration(row, comparison).items() if key not in comparison.keys}
            | {"values": dict(row.configuration.differing), "marks": list(row.marks)}
            | {"runs": [_whole_run(run, row, comparison) for run in row.configuration.runs]}
            for row in comparison.rows
        ],
        "pairs": _pairs(comparison),
    }


def plain(node: Any) -> Any:
    """The same with None where a number is none, which JSON can't say."""
    if isinstance(node, dict):
        return {str(key): plain(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [plain(value) for value in node]
    return None if isinstance(node, float) and not math.isfinite(node) else node


def _configuration(row: Row, comparison: Comparison) -> dict[str, Any]:
    middle = row.mean
    return {
        "rank": row.rank,
        "configuration": row.configuration.label,
        **row.configuration.differing,
        "seeds": middle.n if middle else 0,
        "runs": len(row.configuration.runs),
        "mean": middle.mean if middle else None,
        "low": middle.low if middle else None,
        "high": middle.high if middle else None,
        **{name: row.cost(name) for name in COSTS},
        "tokens": row.reached("tokens"),
        "flops": row.reached("flops"),
        "complete": row.whole,
    }


def _run(run: Run, row: Row, comparison: Comparison) -> dict[str, Any]:
    """One line of runs.csv: best, its step, last and its step of each metric, and what it was where the ranked metric
    was best."""
    end = run.end
    line: dict[str, Any] = {
        "run": run.where,
        "checkpoint": run.checkpoint,
        "state": run.state,
        "mark": run.mark,
        "counted": any(run is other for other, _ in row.values),
        "rank": row.rank,
        "configuration": row.configuration.label,
        **row.configuration.differing,
        "seed": run.seed,
        "step": end.step if end else None,
        "tokens": end.tokens if end else None,
        "flops": end.flops if end else None,
        **{name: run.costs.get(name) for name in COSTS},
    }
    for metric, told in _measured(run, comparison).items():
        line |= {f"{metric}:{what}": value for what, value in told.items()}
    return line


def _whole_run(run: Run, row: Row, comparison: Comparison) -> dict[str, Any]:
    line = {key: value for key, value in _run(run, row, comparison).items() if ":" not in key}
    for key in (*comparison.keys, "rank", "configuration"):
        line.pop(key, None)
    return line | {"metrics": {name: told for name, told in _measured(run, comparison).items() if any(told.values())}}


def _measured(run: Run, comparison: Comparison) -> dict[str, dict[str, Any]]:
    chosen = best(run.series.get(comparison.metric, []), comparison.higher)
    found = {}
    for metric in comparison.metrics:
        points = run.series.get(metric, [])
        higher = comparison.higher if metric == comparison.metric else is_higher_better(metric)
        top, end = best(points, higher), last(points)
        found[metric] = {
            **_told("best", top),
            **_told("last", end),
            "at_best": None if chosen is None else at(points, chosen.step),
        }
    return found


def _told(what: str, value: Value | None) -> dict[str, Any]:
    return {what: value.value if value else None, f"{what}_step": value.step if value else None}


def _pairs(comparison: Comparison) -> list[dict[str, Any]]:
    labels = [row.configuration.label for row in comparison.rows]
    return [
        asdict(pair) | {"first": labels[pair.first], "second": labels[pair.second], "differs": pair.differs}
        for pair in comparison.pairs
    ]


def _csv(lines: Sequence[dict[str, Any]]) -> str:
    """The lines under every key that any of them has, in order; a gap where one has none."""
    columns = list(dict.fromkeys(key for line in lines for key in line))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(line.get(column)) for column in columns] for line in lines)
    return text.getvalue()


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return repr(value) if isinstance(value, float) else shown(value)
