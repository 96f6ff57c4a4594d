"""What the jobs of a plan will take: memory by playing a step through, time by the speed of one real step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from builder.bench.contender import Ours
from builder.bench.settings import BenchSpec, workload
from builder.bench.work import TrainingStep
from builder.checklist.memory import judge
from builder.finding import Status
from builder.memory import Forecaster
from builder.spec import RunSpec

from .plan import Plan, Planned, in_one_line, numbered

PATIENCE = 30.0
"""Seconds that the forecasts of all points may take together: the largest points come first."""

LARGEST = 2e12
"""FLOPs of a training step, forward and backward, that is still measured: some seconds on a slow machine."""


def costed(plan: Plan, tell: Callable[[], object], patience: float = PATIENCE) -> Plan:
    """The plan with the memory and the time of its jobs; a job whose step can't fit its device becomes invalid."""
    plan = _with_memory(plan, tell, patience)
    speed = _speed(plan)
    if speed is None:
        return plan
    points = [replace(p, seconds=p.flops / speed) if p.status == "planned" and p.flops else p for p in plan.points]
    return replace(plan, points=tuple(points))


def _with_memory(plan: Plan, tell: Callable[[], object], patience: float) -> Plan:
    ends = time.monotonic() + patience
    found: dict[str, tuple[int | None, str]] = {}
    for point in sorted(plan.jobs, key=lambda point: -(point.params or 0)):
        weight = _weighs(plan.specs[point.asks or ""])
        if weight not in found and time.monotonic() < ends:
            found[weight] = _forecast(plan.specs[point.asks or ""])
        tell()
    points = []
    for point in plan.points:
        if point.status == "planned":
            memory, refused = found.get(_weighs(plan.specs[point.asks or ""]), (None, ""))
            fate = {"status": "invalid", "job": None, "reason": refused} if refused else {}
            point = replace(point, memory=memory, **fate)
        points.append(point)
    return numbered(replace(plan, points=tuple(points)))


def _weighs(spec: RunSpec) -> str:
    """What two runs share that take the same memory: all but their seed, their steps and their rates."""
    data = spec.to_dict()
    knobs = {key: data[key] for key in ("model", "batch", "compile", "activation_checkpointing", "fused_loss", "ema")}
    return f"{knobs} {data['optimizer']['name']} {spec.objective} {dict(spec.trainer).get('precision')} " + str(
        {key: spec.trainer.get(key) for key in ("accelerator", "devices", "num_nodes", "strategy")}
    )


def _forecast(spec: RunSpec) -> tuple[int | None, str]:
    """(bytes at the worst moment, why that can't be): None where it can't be played through."""
    try:
        forecaster = Forecaster(spec)
        forecast = forecaster.at(forecaster.chosen)
    except Exception:  # a component that asks for numbers while there are none: the job's own check will say so
        return None, ""
    verdict = judge(forecaster)
    return forecast.peak.total, in_one_line([verdict]) if verdict.status is Status.FAIL else ""


def _speed(plan: Plan) -> float | None:
    """FLOPs a second of a real training step: that of the middle job whose device is here, by its size."""
    sized = sorted(plan.jobs, key=lambda point: point.flops_per_token or 0)
    for point in [*sized[len(sized) // 2 :], *sized[: len(sized) // 2][::-1]]:
        if (made := _measured(plan.specs[point.asks or ""], point)) is not None:
            return made
    return None


def _measured(spec: RunSpec, point: Planned) -> float | None:
    step_flops = (point.flops or 0) / spec.steps
    if step_flops > LARGEST:
        return None
    try:
        here = Forecaster(spec).device.kind
        work = workload(spec, BenchSpec(device=here))
        step = TrainingStep(Ours(spec, work.place), spec, work)
        step()
        return step_flops / min(step() for _ in range(2))
    except Exception:  # a device that isn't here, or hasn't the room: then nothing is known
        return None
