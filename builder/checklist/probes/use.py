"""Which options nothing reads: a small run is built, trained a step, validated and made to write, and watched at it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from pydantic import BaseModel

from builder.data.corpus import Corpus
from builder.errors import ArchlabError
from builder.finding import Finding, Status
from builder.generation import generate
from builder.ledger import ledger
from builder.model.assemble import build
from builder.reads import reading, sections
from builder.training.averaging import averages
from builder.training.guard import Guard, Spike
from builder.training.losses import Losses

from . import LENGTH
from .lesson import Lesson

WATCHED = ("model", "objective", "optimizer", "schedule", "ema", "guard")
"""The sections whose keys a small run reads."""
PREPARED = ("data", "tokenizer")
"""Those that are read while the data is prepared."""
_RULE = "every key is read by something that runs: what nothing reads has no effect (a dead option)"


def prove(lesson: Lesson, corpus: Corpus | None, idle: tuple[str, ...]) -> Iterator[Finding]:
    """Keys that nothing read: those that were set FAIL, and those at their defaults are named.

    `idle` names slots that no layer uses, which question 4 has told of.
    """
    spec = lesson.spec
    roots = [(name, value) for name in WATCHED if isinstance(value := getattr(spec, name), BaseModel)]
    with reading(*roots) as read:
        _live(lesson)
    with reading(("model", lesson.run.model)) as long:  # some keys matter at the length of training alone
        ledger(lesson.run.model)
    read |= long
    stated = [(name, getattr(lesson.run, name)) for name, _ in roots]
    if corpus is not None:
        read |= corpus.read | _drawn(lesson.run, corpus)
        stated += [(name, getattr(lesson.run, name)) for name in PREPARED]
    keys = {path: value for name, section in stated for path, value in _keys(section, name) if not _under(path, idle)}
    dead = {path: value for path, value in keys.items() if path not in read}
    for path, (value, default) in dead.items():
        if value != default:
            found, fix = f"{value}, read by nothing", f"{path}={default}, or leave it out"
            yield Finding(Status.FAIL, 4, path, found, _RULE, fix.replace("None", "null"))
    if all(value == default for value, default in dead.values()):
        parts = ", ".join(name for name, _ in stated)
        silent = f"; not read, and at their defaults: {', '.join(dead)}" if dead else ""
        rule = f"proven: a small run was built, trained, validated and made to write{silent}"
        yield Finding(Status.PASS, 4, "model", f"{len(keys) - len(dead)} keys of {parts} are read", rule)


def _live(lesson: Lesson) -> None:
    """The life of a run: it is built, reads, steps, is averaged and guarded, is validated, and goes on with a text."""
    spec, task = lesson.spec, lesson.tasks[0]
    kinds: Any = spec.optimizer.component, spec.schedule.component, spec.objective.component
    objective = kinds[2](spec.objective)
    for batch in lesson.batches:
        objective.task(objective.collate(dict(batch), range(len(batch["tokens"])), lesson.tokenizer))
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = build(spec.model, seed=0).train()
        stepper = kinds[0].build(spec.optimizer, model)
        average = averages(spec.ema, kinds[0].deployed(stepper))
        losses = Losses(model, objective, spec)
        total, _, aux = losses.of(task)
        (total + sum(aux.losses.values())).backward()
        for module, tally in aux.tallies.items():
            module.settle(tally)  # type: ignore[operator]
        stepper.step()
        average.update(model)
    schedule = kinds[1](spec.schedule, spec.steps)
    for tenth in range(11):
        schedule.factor((spec.steps - 1) * tenth // 10)
    if spec.guard is not None:
        guard = Guard(spec.guard)
        guard.judge(torch.tensor(1.0), torch.tensor(1.0), 1)
        with suppress(Spike):
            guard.refuse("to see what that reads")
    losses.model.eval()
    losses.judged(task)
    if model.spec.causal and model.head.gives == "tokens":
        start, source = lesson.specimen.tokens[:, :1], lesson.specimen.source
        with suppress(ArchlabError):  # other probes tell of numbers that are none
            generate(model, start, source=source, max_new_tokens=LENGTH - 1)


def _drawn(run: Any, corpus: Corpus) -> set[str]:
    """What of the data's keys is read where a batch is drawn."""
    with reading(*((name, getattr(run, name)) for name in PREPARED)) as read:
        for side in (corpus.train, corpus.val):
            side.first(1)
    return read


def _keys(section: Any, name: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """(path, (value, default)) of each key that holds a value; names choose, and what they choose is looked at."""
    for path, node in sections(section, name):
        for key, field in type(node).model_fields.items():
            value = getattr(node, key)
            if key != "name" and not isinstance(value, BaseModel) and not _holds_sections(value):
                default = ... if field.is_required() else field.get_default(call_default_factory=True)
                yield f"{path}.{key}", (value, default)


def _holds_sections(value: Any) -> bool:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(isinstance(one, BaseModel) for one in inner)


def _under(path: str, slots: tuple[str, ...]) -> bool:
    return any(path.startswith(f"model.{slot}.") for slot in slots)
