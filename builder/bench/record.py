"""What a measurement leaves behind: every raw sample, what they say, and all that is needed to repeat it, as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from builder.errors import ArchlabError
from builder.spec import RunSpec
from builder.whole import write_whole

from .memory import WHAT
from .settings import Workload
from .suite import Result, Timing


def record(spec: RunSpec, work: Workload, machine: dict[str, Any], result: Result) -> dict[str, Any]:
    """The whole measurement in plain Python; times in seconds, memory in bytes, ratios as ours / theirs."""
    return {
        "config_hash": spec.hash,
        "config": spec.to_dict(),
        "workload": asdict(work),
        "machine": machine,
        "peer": result.peer,
        "parameters": result.parameters,
        "mfu": result.mfu,
        "memory": {"what": f"peak of {WHAT}", "bytes": result.memory, "forecast": result.forecast},
        "timings": [_timing(timing) for timing in result.timings],
    }


def write(content: dict[str, Any], root: str) -> Path:
    """Writes <root>/bench/<time>.json; raises ArchlabError where that can't be written."""
    path = Path(root, "bench", f"{datetime.now():%Y%m%d-%H%M%S-%f}.json")
    try:
        write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise ArchlabError(
            f"output.root: {path} can't be written ({error.strerror}); choose another output.root"
        ) from None
    return path


def _timing(timing: Timing) -> dict[str, Any]:
    samples, ratio = timing.samples, timing.ratio
    middles = {name: median(seconds) for name, seconds in samples.seconds.items()}
    return {
        "what": timing.what,
        "batch": timing.rows,
        "tokens": timing.tokens,
        "repeats": samples.repeats,
        "seconds": samples.seconds,
        "median_seconds": middles,
        "parts": timing.parts,
        "tokens_per_second": {name: timing.tokens / middle for name, middle in middles.items()},
        "ratio": {**asdict(ratio), "verdict": ratio.verdict} if ratio else None,
    }
