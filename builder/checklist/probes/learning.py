"""Whether a step teaches: every parameter is reached, the same step is the same twice, and the loss falls by it."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from builder.checklist.where import path_of
from builder.components.init import roles
from builder.finding import Finding, Status
from builder.model.assemble import build
from builder.model.language_model import LanguageModel

from . import tying
from .lesson import Lesson

_SURPRISED = 4
"""How many times the loss of an even guess a model may have at first; published ones have up to twice that."""
_LESS = (0.1, 0.01, 1e-3, 1e-4, 1e-6)
"""What is tried of the learning rate where a step of the whole one doesn't lower the loss."""


def prove(lesson: Lesson) -> Iterator[Finding]:
    """Gradients of the specimen, twice; then one step of the run's optimizer on a copy with the run's own init."""
    model = copy.deepcopy(lesson.model).train()
    first, again = _gradients(lesson, model), _gradients(lesson, model)  # the same object: it may remember the first
    yield from _reached(lesson, first)
    if not all(gradient.isfinite().all() for gradient in first.values()):
        return  # nothing else can be asked of it
    yield _repeated(first, again)
    yield from _lowered(lesson)


def _gradients(lesson: Lesson, model: LanguageModel) -> dict[str, Tensor]:
    """The gradient of each trained parameter over all batches, as in training, by name; empty where there is none."""
    model.zero_grad()
    with torch.random.fork_rng([]):
        torch.manual_seed(0)  # of dropout, jitter and noise
        for task in lesson.tasks:
            lesson.loss(model, task).backward()
    trained = {name: parameter for name, _, parameter, _ in roles(model) if parameter.requires_grad}
    return {name: p.new_empty(0) if p.grad is None else p.grad for name, p in trained.items()}


def _reached(lesson: Lesson, gradients: dict[str, Tensor]) -> Iterator[Finding]:
    """Parameters that no loss pulls at, and those at which it pulls with what is no number."""
    broken = [name for name, gradient in gradients.items() if not gradient.isfinite().all()][::-1]  # it came from there
    idle = [name for name, gradient in gradients.items() if not gradient.any()]
    for names, what, rule in (
        (broken, "a gradient that is no number", "a step with such a gradient spoils all weights"),
        (idle, "no gradient", "every parameter that is trained is reached by the loss: this one would only decay"),
    ):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            found, fix = f"{names[0]}{more}: {what}", "another component, or options under which it is used"
            yield Finding(Status.FAIL, 4, path_of(lesson.model.spec, names[0]), found, rule, fix)
    if not broken and not idle:
        found = f"a finite gradient at each of {len(gradients)} trained parameters"
        yield Finding(Status.PASS, 4, "model", found, "proven on rows of every kind: all that is trained is reached")


def _repeated(first: dict[str, Tensor], again: dict[str, Tensor]) -> Finding:
    other = [name for name, gradient in first.items() if not torch.equal(gradient, again[name])]
    if not other:
        rule = "proven: what is drawn comes from the seed alone, so that a run can be had again"
        return Finding(Status.PASS, 4, "seed", "two steps of one seed are equal bit for bit", rule)
    found = f"two steps of one seed differ, first at {other[0]} ({len(other)} of {len(first)} parameters)"
    rule = "what is drawn comes from torch's generator, which the seed sets"
    return Finding(Status.FAIL, 4, "seed", found, rule, "a component that draws with torch, and keeps no generator")


def _lowered(lesson: Lesson) -> Iterator[Finding]:
    """One step on a batch that is then asked again; where it fails, one of a much smaller rate tells why. What was tied
    is tied after it."""
    before, after, model = _step(lesson, 1.0)
    yield from tying.after(model)
    if lesson.objective.language and before > _SURPRISED * (even := math.log(lesson.model.vocab_size)):
        rule = f"at first nothing is known, and an even guess costs {even:.1f} nats: this one is sure of what is wrong"
        yield Finding(
            Status.WARN, 4, "model.init", f"{before:.1f} nats before the first step", rule, "model/init=normal"
        )
    found = f"{before:.4f} nats before a step, {after:.4f} behind it, on the same rows"
    if after < before:
        rule = "proven on a small copy, at the peak of the learning rate"
        yield Finding(Status.PASS, 4, "optimizer", found, rule)
        return
    if after == before:
        rule = "the rate is too low: float32 doesn't show what a step changes"
        yield Finding(Status.WARN, 4, "optimizer.lr", found, rule, "optimizer.lr=0.001, or what suits the model")
        return
    for share in _LESS:
        start, end, _ = _step(lesson, share)
        if end < start:
            rule = f"the rate is too high: at {share:g} of it a step goes from {start:.4f} to {end:.4f} nats"
            yield Finding(Status.WARN, 4, "optimizer.lr", found, rule, _lower(lesson, share))
            return
    rule = "a step along the gradient lowers the loss, however small it is: here it points elsewhere"
    yield Finding(Status.FAIL, 4, "optimizer", found, rule, "optimizer=adamw")


def _lower(lesson: Lesson, share: float) -> str:
    rate = getattr(lesson.run.optimizer, "lr", None)
    return "a lower rate" if rate is None else f"optimizer.lr={rate * share:g}"


def _step(lesson: Lesson, share: float) -> tuple[float, float, LanguageModel]:
    """The loss of one batch before and behind a step of `share` of the rate, on a small copy drawn as the run's is."""
    model = build(lesson.spec.model, seed=0).double().eval()  # nothing is dropped: the loss is asked twice
    optimizer: Any = lesson.run.optimizer.component
    stepper = optimizer.build(lesson.run.optimizer, model)
    for group in stepper.param_groups:
        group["lr"] = group["lr"] * share
    task = lesson.tasks[0]
    loss = lesson.loss(model, task)
    loss.backward()
    stepper.step()
    with torch.no_grad():
        after = lesson.loss(model, task).item()
    return loss.item(), after if math.isfinite(after) else math.inf, model
