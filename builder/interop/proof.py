"""The weights of a folder that transformers wrote, proven without making the model: they fit, and are numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from builder.checklist.where import path_of
from builder.finding import Finding, Status
from builder.spec import ModelSpec

from .bring import HEAD, SOURCE, TABLE, Found, Misfit, fit, read_state, tied, unlike

_SHOWN = 20
"""So many tensors are told one by one; the rest is counted."""


def prove(found: Found) -> Iterator[Finding]:
    """Whether names and shapes are those of the model, what must be equal is, and every weight is a finite number.

    One tensor of theirs is in memory at a time, and what must be equal.
    """
    laid = fit(found)
    misfits = laid.misfits
    if not misfits:  # what is equal to what is only asked of whole ones
        names = (tied(found.spec) | set(found.family.copies.values())) & laid.empty.keys()
        state = read_state(found, laid, torch.float32, names | {TABLE} if names else ())
        misfits = tuple(unlike(found, laid, state))
    rule = "every tensor of the model is there, and nothing else"
    for misfit in misfits[:_SHOWN]:
        yield _told(misfit, found, rule)
    if len(misfits) > _SHOWN:
        yield _fail(4, "model", f"{len(misfits) - _SHOWN} more tensors that don't fit", rule)
    if not misfits:
        yield Finding(Status.PASS, 4, "model", f"{len(laid.stored):,} tensors fit by name and shape", f"proven: {rule}")
    yield from _finite(
        found, {name: ours for match in laid.table for ours in match.ours[:1] for name in [match.theirs]}
    )


def _finite(found: Found, ours: dict[str, str]) -> Iterator[Finding]:
    rule = "every weight is a finite number"
    spoilt = [name for name in found.files.shapes if not _is_finite(found.files[name])]
    for name in spoilt[:_SHOWN]:
        yield _told(Misfit(ours.get(name, ""), f"{name}: not every number in it is finite"), found, rule)
    if len(spoilt) > _SHOWN:
        yield _fail(4, "model", f"{len(spoilt) - _SHOWN} more tensors with numbers that aren't finite", rule)
    if not spoilt:
        yield Finding(Status.PASS, 4, "model", "no weight is infinite, and none is no number", f"proven: {rule}")


def _is_finite(tensor: torch.Tensor) -> bool:
    """By the smallest and the largest: one that is no number is both, and that is many times as fast as asking each."""
    wide = tensor.float() if tensor.itemsize == 1 else tensor  # of one byte, torch can't order them
    return not tensor.numel() or all(map(math.isfinite, (each.item() for each in torch.aminmax(wide))))


def _told(misfit: Misfit, found: Found, rule: str) -> Finding:
    section = 6 if misfit.ours in (TABLE, HEAD, SOURCE) else 4
    return _fail(section, _path(misfit.ours, found.spec), misfit.said, rule)


def _fail(section: int, path: str, said: str, rule: str) -> Finding:
    return Finding(Status.FAIL, section, path, said, rule, "save the model there anew, or mend its config.json")


def _path(ours: str, spec: ModelSpec) -> str:
    """The key of the config that a tensor of ours comes from."""
    return "model.vocab_size" if ours in (TABLE, SOURCE, HEAD) else path_of(spec, ours)
