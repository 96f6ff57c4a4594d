"""Question 1: what are d, L, H_q, H_kv, d_h and d_ff, and what do they cost?"""

from __future__ import annotations

from collections.abc import Iterator

from builder.finding import Finding, Status

from . import budget, memory
from .probes import costs as flops
from .subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """The dimensions of the model and of every slot, the tiling of the pattern, the costs, and the budget."""
    model = subject.model
    for name, tower in model.towers.items():
        path, found = ("model.d_model", f"d {model.d_model}, ") if not name else (f"model.{name}.n_layers", "")
        rule = f"layers of {', '.join(tower.kinds)}"
        yield Finding(Status.PASS, 1, path, f"{found}L {tower.n_layers}", rule)
    yield from _tiling(subject)
    yield from subject.stated_in(1)
    yield from _costs(subject)
    yield from budget.check(subject)


def _tiling(subject: Subject) -> Iterator[Finding]:
    for name, tower in subject.model.towers.items():
        layers, period, where = tower.n_layers, len(tower.pattern), f"model.{name}.".replace("..", ".")
        if layers % period:
            fix = f"{where}n_layers={layers + -layers % period}, if whole rounds are meant"
            rule = f"the pattern has {period} layers: its last round is cut short"
            yield Finding(Status.WARN, 1, f"{where}pattern", f"{layers} layers", rule, fix)


def _costs(subject: Subject) -> Iterator[Finding]:
    costs = subject.ledger
    if costs is None:
        if subject.fault is not None:
            yield subject.fault
        rule = "parameters, FLOPs and state bytes need a model that can be built"
        yield Finding(Status.UNKNOWN, 1, "model", "no ledger", rule, "mend the failures")
        return
    parts = ", ".join(f"{name} {count:,}" for name, count in costs.components.items())
    yield Finding(Status.PASS, 1, "model", f"{costs.params:,} parameters", parts)
    rule = f"forward pass at train_length {subject.model.train_length}; a training step costs three times as much"
    yield Finding(Status.PASS, 1, "model", f"{costs.flops_per_token:,} FLOPs per token", rule)
    if subject.probes:
        yield from subject.prove(1, "model", "FLOPs against those stated", flops.prove)
    rule = f"{costs.state_bytes:,} bytes at deploy_length {subject.model.deploy_length}, in float32"
    yield Finding(Status.PASS, 1, "model", f"{costs.state_bytes_per_token:,} state bytes per token", rule)
    for slot, size in costs.constant_state_bytes.items():
        rule = f"what a layer of {slot} keeps of one sequence, in float32, however long that becomes"
        yield Finding(Status.PASS, 1, f"model.{slot}", f"{size:,} bytes of state, constant", rule)
    if subject.trains:
        yield memory.check(subject)
