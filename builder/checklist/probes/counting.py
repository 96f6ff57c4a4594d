"""What the loss counts: its gradient against the declared mask, and what each target is told of itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from builder.finding import Finding, Status
from builder.training.objective import Batch, Task

from .lesson import Lesson, joined, moved

_PATH = "objective"
_RULE = "the loss has a gradient where its mask counts a target, and nowhere else"
_NUDGE = 0.1
"""What is added to the logits of all targets, to see the loss fall."""
_FIX = "another objective, or one whose loss counts what task.loss_mask says"


def prove(lesson: Lesson) -> Iterator[Finding]:
    """The gradient of the loss against its mask, for every batch; then where each target is from, and who sees it."""
    judged = ([*_felt(lesson, task), *_summed(lesson, task)] for task in lesson.tasks)
    wrong = next(filter(None, judged), [])  # of the first batch with a fault: the others tell the same
    yield from wrong
    if not wrong:
        counts = [int(task.counts[0]) for task in lesson.tasks]
        found = f"gradient at {' and '.join(map(str, counts))} counted targets, zero everywhere else"
        yield Finding(Status.PASS, 2, _PATH, found, f"proven on rows with padding, prompts and documents: {_RULE}")
    origins = [_origins(lesson, batch, task) for batch, task in zip(lesson.batches, lesson.tasks, strict=True)]
    yield from _hidden(lesson, [origin for origin in origins if origin is not None])


def _felt(lesson: Lesson, task: Task) -> Iterator[Finding]:
    """Where the loss pulls at what the head gives, or at hidden states where logits never exist, against its mask."""
    tokens, beside = task.read
    with torch.no_grad():
        output = lesson.model(tokens, **beside)
    given = (output.hidden if lesson.spec.fused_loss else output.logits).detach().requires_grad_()
    total = (
        lesson.objective.fused(given, lesson.model.head, task)[0]
        if lesson.spec.fused_loss
        else lesson.objective.loss(given, task)[0]
    )
    (gradient,) = torch.autograd.grad(total, given)
    felt = (gradient != 0).any(-1)  # of the shape of the targets
    if task.loss_mask is None:
        if not felt.all():
            yield _failed(f"{int((~felt).sum())} of {felt.numel()} targets have no gradient")
        return
    counted = task.loss_mask.view_as(felt)
    for where, said in ((felt & ~counted, "has a gradient and isn't counted"), (counted & ~felt, "has no gradient")):
        if places := where.nonzero().tolist():
            yield _failed(f"the target at {places[0]} {said} ({len(places)} such targets)")


@torch.no_grad()
def _summed(lesson: Lesson, task: Task) -> Iterator[Finding]:
    """Whether the loss is a sum over the targets that count, with their number beside it, and falls with the right."""
    tokens, beside = task.read
    output = lesson.model(tokens, **beside)
    total, counted = lesson.objective.loss(output.logits, task)
    targets = task.targets.numel() if task.loss_mask is None else int(task.loss_mask.sum())
    if int(counted) != targets or not targets:
        yield _failed(f"{int(counted)} targets in the mean, and {targets} that count")
    if not lesson.objective.together:
        twice = joined([task, task])
        tokens, beside = twice.read
        again, _ = lesson.objective.loss(lesson.model(tokens, **beside).logits, twice)
        if not torch.allclose(again, 2 * total, rtol=1e-3):
            found = f"{total.item():.4g} nats for a batch, {again.item():.4g} for the same rows twice"
            yield Finding(Status.FAIL, 2, _PATH, found, "a loss is the sum over its targets", _FIX)
    if lesson.objective.language and targets:
        right = output.logits.scatter_add(-1, task.targets[..., None], torch.full_like(output.logits[..., :1], _NUDGE))
        better, _ = lesson.objective.loss(right, task)
        if not better < total:
            found = f"{total.item():.4g} nats, {better.item():.4g} with every target {_NUDGE} likelier"
            rule = "the loss falls where a target becomes likelier"
            yield Finding(Status.FAIL, 2, _PATH, found, rule, "another objective: this one teaches the contrary")


def _failed(found: str) -> Finding:
    return Finding(Status.FAIL, 2, _PATH, found, _RULE, _FIX)


@dataclass(frozen=True)
class Origin:
    """Of a batch and the targets made of it: target [b, t] is made of token [b, p] of the data where `of`[p, b, t];
    `seen` where that token also moves what predicts it. `across`: whether a target of another document is asked for;
    `packs`: whether the data packs documents that are not to see each other."""

    batch: Batch
    task: Task
    of: Tensor  # (P, B, T)
    seen: Tensor  # (P, B, T)
    across: bool
    packs: bool


@torch.no_grad()
def _origins(lesson: Lesson, batch: Batch, task: Task) -> Origin | None:
    """None where targets are no tokens of the text that is read."""
    width = batch["tokens"].shape[1]
    others = [lesson.task(moved(lesson, batch, place)) for place in range(width)]
    if task.targets.ndim != 2 or any(other.targets.shape != task.targets.shape for other in others):
        return None
    whole = joined([task, *others])
    tokens, beside = whole.read
    said = lesson.model(tokens, **beside).logits.unflatten(0, (width + 1, -1))  # (1 + P, B, T, V)
    targets = whole.targets.unflatten(0, (width + 1, -1))  # (1 + P, B, T)
    counts = torch.ones_like(task.targets, dtype=torch.bool) if task.loss_mask is None else task.loss_mask
    of = (targets[1:] != targets[:1]) & counts
    if not of.any():
        return None
    change = (said[1:] - said[:1]).abs().amax(-1) / said.abs().max()  # (P, B, T)
    shown = _shown(lesson, task, counts)
    across = getattr(lesson.run.objective, "across_documents", False)
    packs = getattr(lesson.run.data, "packing", None) == "documents"
    return Origin(batch, task, of, of & ~shown & ~(change <= lesson.specimen.tolerance), across, packs)


def _shown(lesson: Lesson, task: Task, counts: Tensor) -> Tensor:
    """The targets that stay in what is read, where no more of them do than the objective says: (B, T) bool."""
    share = lesson.objective.shows(lesson.run.objective)
    if not share or task.inputs.shape != task.targets.shape:
        return torch.zeros_like(counts)
    there = (task.inputs == task.targets) & counts
    return there if there.sum() <= (1 + share) / 2 * counts.sum() else torch.zeros_like(counts)


def _hidden(lesson: Lesson, origins: list[Origin]) -> Iterator[Finding]:
    """What is wrong with the tokens that targets are made of; or that nothing is."""
    if not origins and lesson.objective.language:
        rule = "what is asked for is a text, and changes with the text that the data gives"
        yield Finding(Status.FAIL, 2, _PATH, "targets that no token of the data changes", rule, _FIX)
        return
    if not origins:
        rule = "a label stands in no text: nothing that is read holds it"
        yield Finding(Status.PASS, 2, _PATH, "targets are no tokens of what is read", rule)
        return
    asked = (_seen, _unreal, _uncounted, _across)
    wrong = [next(filter(None, (ask(origin) for origin in origins)), None) for ask in asked]
    yield from filter(None, wrong)
    if not any(wrong):
        several = any("segments" in origin.batch for origin in origins)
        joint = ", and none is predicted from another document" * (several and not origins[0].across)
        rule = f"proven: the token of each target was changed{joint}"
        yield Finding(Status.PASS, 2, _PATH, "no target is seen by what predicts it", rule)


def _seen(origin: Origin) -> Finding | None:
    where = origin.seen.nonzero().tolist()
    if not where:
        return None
    place, row, at = where[0]
    found = f"what predicts target {at} of row {row} moves with it, token {place} of the data ({len(where)} such)"
    rule = "no target is visible to the position that predicts it: it would be copied, and not predicted"
    return Finding(Status.FAIL, 2, _PATH, found, rule, "another objective, or one that hides or shifts its targets")


def _unreal(origin: Origin) -> Finding | None:
    real = origin.batch.get("attention_mask")
    return None if real is None else _among(origin, ~real, "padding", "padding is never a target")


def _uncounted(origin: Origin) -> Finding | None:
    counted = origin.batch.get("counted")
    if counted is None:
        return None
    aligned = len(origin.of) - origin.task.targets.shape[1] in (0, 1)  # else whole rows count, or none of their tokens
    told = counted if aligned else counted.any(1, keepdim=True).expand_as(counted)
    return _among(origin, ~told, "a prompt", "what the data doesn't count is never a target")


def _among(origin: Origin, tokens: Tensor, what: str, rule: str) -> Finding | None:
    """Targets that are made of such tokens (B, P)."""
    where = (origin.of & tokens.T[..., None]).nonzero().tolist()
    if not where:
        return None
    found = f"target {where[0][2]} of row {where[0][1]} is {what} ({len(where)} such targets)"
    return Finding(Status.FAIL, 2, _PATH, found, rule, _FIX)


def _across(origin: Origin) -> Finding | None:
    """Targets of one document that are predicted from another."""
    segments, there = origin.batch.get("segments"), origin.task.segments
    if segments is not None and there is None and origin.packs:
        rule = "documents that are packed into a row don't see each other, and this objective forgets where one ends"
        return Finding(Status.FAIL, 2, "data.packing", "documents, read as one text", rule, "data.packing=padded")
    if segments is None or there is None or origin.across:
        return None
    where = (origin.of & (segments.T[..., None] != there)).nonzero().tolist()
    if not where:
        return None
    found = f"target {where[0][2]} of row {where[0][1]} is of another document ({len(where)} such targets)"
    rule = "no loss is counted across documents unless objective.across_documents is true"
    return Finding(Status.FAIL, 2, _PATH, found, rule, "objective.across_documents=true, if that is meant")
