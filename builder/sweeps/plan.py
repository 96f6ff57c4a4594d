"""The plan of a sweep: what each point is, whether it may run, and what it will cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from builder.acting import request
from builder.checklist import check
from builder.checklist.monitors import unwatchable
from builder.data import cache_folder, prepare
from builder.errors import ArchlabError, ConfigError, Problem
from builder.finding import Finding, Status
from builder.ledger import ledger
from builder.load import load
from builder.spec import RunSpec
from builder.whole import write_whole

from .axes import Point, as_words

FILE = "plan.json"

JUDGED = "judged by the checklist without its probes, which each job runs as it starts"
"""What a point has passed that is planned: probes build and run each model, seconds for every point."""

Compose = Callable[[Point], dict[str, Any]]


@dataclass(frozen=True)
class Planned:
    """One point of a sweep.

    apart       those of its overrides that not every point has
    job         its number among those that are launched, which is also its folder; None: it isn't launched
    key         equal for points of which one is enough; None in plans of earlier versions, which went by the hash
    status      planned; invalid for the `reason`; duplicate: it is the same model and run as job `same_as`
    flops       of forward and backward passes over all its tokens
    memory      bytes of a rank at the worst moment of a step, None where that wasn't forecast
    seconds     of its steps, None where no step could be measured
    trial       the number that a search gave it
    """

    overrides: tuple[str, ...]
    status: Literal["planned", "invalid", "duplicate"]
    apart: tuple[str, ...] = ()
    job: int | None = None
    reason: str = ""
    same_as: int | None = None
    hash: str | None = None
    key: str | None = None
    params: int | None = None
    flops_per_token: int | None = None
    flops: int | None = None
    memory: int | None = None
    seconds: float | None = None
    trial: int | None = None

    @property
    def asks(self) -> str | None:
        """What is asked for: equal for points of which one is enough."""
        return self.key or self.hash


@dataclass(frozen=True)
class Plan:
    """All points of a sweep, in the order of its axes; `specs` holds those of its jobs, by what they ask for."""

    sweep: str
    points: tuple[Planned, ...]
    specs: dict[str, RunSpec]

    @property
    def jobs(self) -> list[Planned]:
        """The points that are launched, by number."""
        return [point for point in self.points if point.status == "planned"]

    def of(self, status: str) -> list[Planned]:
        """The points of one status."""
        return [point for point in self.points if point.status == status]

    def write(self, folder: Path, **facts: Any) -> None:
        """Writes plan.json, with what else a later process must know. Raises OSError."""
        created = datetime.now().isoformat(timespec="seconds")
        points = [asdict(point) for point in self.points]
        content = {"sweep": self.sweep, "created": created, **facts, "points": points}
        write_whole(folder / FILE, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def make(sweep: str, points: Iterable[Point], compose: Compose, tell: Callable[[], object]) -> Plan:
    """Judges every point; `tell` is called after each. Nothing is measured yet, and no weight allocated."""
    planned: list[Planned] = []
    specs: dict[str, RunSpec] = {}
    verdicts: dict[str, str] = {}
    for choice in points:
        words = tuple(as_words(choice))
        try:
            spec = load(compose(choice))
            reason = _judged(spec, verdicts)
        except ArchlabError as error:
            planned.append(Planned(words, "invalid", reason=in_one_line(error)))
        else:
            key = request(spec)
            point = Planned(words, "planned", hash=spec.hash, key=key)
            if reason:
                planned.append(replace(point, status="invalid", reason=reason))
            elif key in specs:
                planned.append(replace(point, status="duplicate"))
            else:
                specs[key] = spec
                planned.append(_costed(point, spec))
        tell()
    return numbered(Plan(sweep, tuple(planned), specs))


def numbered(plan: Plan) -> Plan:
    """The plan with what sets each point apart, the numbers of its jobs, and each duplicate told which it is."""
    jobs = {point.asks: number for number, point in enumerate(plan.of("planned"))}
    refused = {point.asks: point.reason for point in plan.of("invalid")}
    shared = set[str].intersection(*(set(point.overrides) for point in plan.points)) if plan.points else set[str]()
    points = []
    for point in plan.points:
        point = replace(point, apart=tuple(word for word in point.overrides if word not in shared))
        if point.status == "planned":
            point = replace(point, job=jobs[point.asks])
        elif point.status == "duplicate" and point.asks in jobs:
            first = jobs[point.asks]
            point = replace(point, same_as=first, reason=f"the same model and run as job {first}")
        elif point.status == "duplicate":  # of one that was refused afterwards
            point = replace(point, status="invalid", same_as=None, reason=refused[point.asks])
        points.append(point)
    return replace(plan, points=tuple(points))


def read(folder: Path) -> dict[str, Any]:
    """What plan.json holds; raises ArchlabError when the folder is no sweep's."""
    try:
        content = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return content if isinstance(content["points"], list) else {}["points"]
    except (OSError, ValueError, KeyError, TypeError):
        near = sorted(str(file.parent) for file in folder.parent.glob(f"*/{FILE}"))[-3:]
        hint = f"; sweeps beside it: {', '.join(near)}" if near else ""
        raise ArchlabError(
            f"sweep.resume: found {str(folder)!r}, which holds no whole {FILE}; give the folder of a sweep, "
            f"e.g. outputs/main/<sweep>{hint}"
        ) from None


def points_of(content: dict[str, Any]) -> tuple[Planned, ...]:
    """The points of a plan.json."""
    lists = ("overrides", "apart")
    return tuple(Planned(**(point | {key: tuple(point[key]) for key in lists})) for point in content["points"])


def _costed(point: Planned, spec: RunSpec) -> Planned:
    costs = ledger(spec.model)
    tokens = spec.steps * spec.rows * spec.model.train_length
    per_token = costs.flops_per_token
    return replace(point, params=costs.params, flops_per_token=per_token, flops=3 * per_token * tokens)


def _judged(spec: RunSpec, verdicts: dict[str, str]) -> str:
    """Why the checklist refuses a run, or nothing; asked once for runs that differ in their seed alone.

    Its data are read once for all that share them.
    """
    key = f"{spec.data} {spec.tokenizer} {spec.objective} {spec.model.train_length}"
    if key not in verdicts:
        verdicts[key] = ""
        try:
            prepare(spec, cache=cache_folder())
        except ArchlabError as error:
            verdicts[key] = in_one_line(error)
    if verdicts[key]:
        return verdicts[key]
    alike = spec.model_copy(update={"seed": 0}).hash
    if alike not in verdicts:
        verdicts[alike] = in_one_line(check(spec, probes=False, trains=False).failures)
    return verdicts[alike] or in_one_line(f for f in unwatchable(spec) if f.status is Status.FAIL)


def in_one_line(said: ArchlabError | Iterable[Problem | Finding]) -> str:
    """What a table has room for: every problem or finding, with what to write."""
    if isinstance(said, ArchlabError) and not isinstance(said, ConfigError):
        return " ".join(str(said).split())
    faults = said.problems if isinstance(said, ConfigError) else said
    lines = [
        f"{fault.path}: found {fault.found}; {fault.rule}" + (f"; fix: {fault.fix}" * bool(fault.fix))
        for fault in faults
    ]
    return "; ".join(lines)
