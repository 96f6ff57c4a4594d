"""Runs from folders: every run below a folder or a glob, and every job of a sweep that never became one."""

from __future__ import annotations

import glob
import json
import os
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from builder.errors import ArchlabError
from builder.experiments.metrics import read_metrics

from .run import ABSENT, COMPLETED, DAMAGED, RUNNING, Run, series
from .yaml_values import parse

SILENCE = 600
"""Seconds without a word after which a run that says it is running may well have been killed."""

_HASH = "# hash: "
_LEDGER = "ledger/"


def read(source: str) -> list[Run]:
    """The runs below a folder, or below each folder that a glob finds, by their paths.

    Raises ArchlabError where there are none.
    """
    places = [Path(path) for path in sorted(glob.glob(source, recursive=True))] or [Path(source)]
    places = [place for place in places if place.is_dir()]
    if not places:
        rule = "it must be a folder, a glob of folders, or wandb:entity/project"
        raise ArchlabError(f"runs: found {source!r}, where no folder is; {rule}; e.g. runs=outputs/main")
    found: dict[Path, Run] = {}
    for place in places:
        for run in _below(place):
            found.setdefault(Path(run.where).resolve(), run)
    if not found:
        rule = "a run folder holds config.yaml and summary.json"
        raise ArchlabError(f"runs: found {source!r}, with no run in it or below it; {rule}; e.g. runs=outputs/main")
    return list(found.values())


def read_folder(path: str | Path) -> Run:
    """The run in one folder. Raises ArchlabError when there is none."""
    folder = Path(path)
    if not _is_run(folder):
        raise ArchlabError(
            f"diff: found {str(path)!r}, which is no run folder; e.g. diff=outputs/main/a,outputs/main/b"
        )
    return _read(folder)


def _below(place: Path) -> Iterator[Run]:
    for root, folders, files in os.walk(place):
        folder = Path(root)
        folders.sort(key=lambda name: name.zfill(9) if name.isdecimal() else name)  # jobs by their numbers
        if _is_run(folder, files):
            folders.clear()  # a run holds no other
            yield _read(folder)
        elif "plan.json" in files:
            yield from _never_begun(folder)


def _is_run(folder: Path, files: list[str] | None = None) -> bool:
    names = files if files is not None else os.listdir(folder) if folder.is_dir() else []
    return "config.yaml" in names or ("summary.json" in names and "plan.json" not in names)


def _read(folder: Path) -> Run:
    text = _text(folder / "config.yaml")
    faults = []
    try:
        config: Any = parse(text) if text else {}
        if not isinstance(config, dict):
            raise yaml.YAMLError
    except yaml.YAMLError:
        config = {}
        faults.append("config.yaml isn't YAML any more")
    summary = _json(folder / "summary.json")
    try:
        rows = read_metrics(folder / "metrics.jsonl")
    except FileNotFoundError:
        rows = []
    except (OSError, ValueError):
        rows = []
        faults.append("metrics.jsonl can't be read")
    if not summary and (folder / "summary.json").exists():
        faults.append("summary.json can't be read")
    state = str(summary.get("status", RUNNING if text else ABSENT))
    if state == COMPLETED and not config:
        faults.append("config.yaml is gone" if not text else "nothing is known of its config")
    state = DAMAGED if faults and state in (COMPLETED, RUNNING) else state
    best = folder / "checkpoints" / "best.ckpt"
    costs = summary.get("ledger")
    typed, apart = _typed(folder)
    return Run(
        where=str(folder),
        name=folder.name,
        state=state,
        reason="; ".join([*filter(None, [summary.get("reason")]), *faults, *_silent(folder, state)]),
        config=config,
        typed=typed,
        apart=apart,
        hash=next((line.removeprefix(_HASH) for line in text.splitlines()[:5] if line.startswith(_HASH)), None),
        corpus=summary.get("corpus"),
        costs={name.removeprefix(_LEDGER): count for name, count in costs.items()} if isinstance(costs, dict) else {},
        series=series(row for row in rows if isinstance(row, Mapping)),
        checkpoint=str(best) if best.exists() else None,
    )


def _silent(folder: Path, state: str) -> list[str]:
    """What is to be thought of a run that says it runs, and writes nothing."""
    if state != RUNNING:
        return []
    times = [file.stat().st_mtime for name in ("metrics.jsonl", "summary.json") if (file := folder / name).exists()]
    age = time.time() - max(times, default=folder.stat().st_mtime)
    hours, minutes = divmod(round(age / 60), 60)
    return [f"nothing written for {hours} h {minutes:02d} min, killed?"] if age > SILENCE else []


def _never_begun(sweep: Path) -> Iterator[Run]:
    """The jobs that a sweep planned and that have no folder; none of a plan of which nothing was launched."""
    jobs = _points(sweep)
    for job in jobs if any((sweep / job).exists() for job in jobs) else ():
        folder = sweep / job
        if not folder.exists():
            typed, apart = _typed(folder)
            yield Run(str(folder), folder.name, ABSENT, typed=typed, apart=apart)


def _typed(job: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The values that the plan of its sweep gives a job, by path, and the words that set it apart."""
    point = _points(job.parent).get(job.name, {})
    words = [str(word).lstrip("+").partition("=") for word in point.get("overrides", [])]
    typed = {path: _value(text) for path, sign, text in words if sign}
    return typed, tuple(map(str, point.get("apart", point.get("overrides", []))))


def _value(text: str) -> Any:
    try:
        return parse(text)
    except yaml.YAMLError:
        return text


def _points(sweep: Path) -> dict[str, dict[str, Any]]:
    """What a sweep has planned, by the folder of the job; points without a job were not launched."""
    try:
        return _planned(sweep / "plan.json", (sweep / "plan.json").stat().st_mtime_ns)
    except OSError:
        return {}


@lru_cache(maxsize=64)
def _planned(path: Path, written: int) -> dict[str, dict[str, Any]]:
    """Read once for all jobs; `written` tells a plan from the one that it replaced."""
    points = _json(path).get("points")
    found = [point for point in points if isinstance(point, dict)] if isinstance(points, list) else []
    return {str(point["job"]): point for point in found if point.get("job") is not None}


def _json(path: Path) -> dict[str, Any]:
    """What a JSON file holds; {} where there is none, or it can't be read."""
    try:
        content = json.loads(_text(path))
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
