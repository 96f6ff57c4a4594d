"""Whether what must be computed in float32 is, where the rest is in bfloat16: each operation of a step is looked at."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from builder.checklist.where import path_of
from builder.components.position import Position
from builder.finding import Finding, Status
from builder.model.positions import Positions

from . import LENGTH
from .lesson import Lesson

_RULE = "angles, softmaxes, statistics, decays, sums along a sequence and the loss are computed in float32"
_FAR = 1000
_ROUNDED = 0.03
"""What the rounding of bfloat16, a part in 256, may change of a vector that is turned or moved, in several steps."""
_ATEN = torch.ops.aten
_KEEN = {
    "angles": (_ATEN.sin, _ATEN.cos),
    "a softmax": (_ATEN._softmax, _ATEN._log_softmax, _ATEN.logsumexp),
    "statistics": (_ATEN.mean, _ATEN.var, _ATEN.var_mean, _ATEN.std, _ATEN.rsqrt, _ATEN.linalg_vector_norm),
    "decays": (_ATEN.exp, _ATEN.exp2, _ATEN.expm1, _ATEN.log, _ATEN.log1p),
    "sums along a sequence": (_ATEN.cumsum, _ATEN.cumprod, _ATEN.logcumsumexp),
}
"""What loses its meaning in bfloat16, whose numbers are a part in 256 apart: by what it is made for."""
_WHAT = {op: what for what, ops in _KEEN.items() for op in ops}


def prove(lesson: Lesson) -> Iterator[Finding]:
    """A forward pass and its loss with weights in bfloat16, and with float32 weights under autocast; then each position
    scheme far from the start, where numbers of bfloat16 are a whole turn apart."""
    yield from _far(lesson)
    found: dict[tuple[str, str], None] = {}
    looked = 0
    for cast in (True, False):
        model = copy.deepcopy(lesson.model).to(torch.bfloat16 if cast else torch.float32).train()
        names: dict[nn.Module, str] = {module: name for name, module in model.named_modules()}
        with torch.random.fork_rng([]), torch.no_grad():
            torch.manual_seed(0)
            with Looking(names) as looking, nullcontext() if cast else torch.autocast("cpu", torch.bfloat16):
                lesson.loss(model, lesson.tasks[0])
        looked += looking.looked
        found |= dict.fromkeys(looking.found)
    if not found:
        what = f"{looked} operations that need float32 have it, with weights in bfloat16 and under autocast"
        yield Finding(Status.PASS, 4, "trainer.precision", what, f"proven: {_RULE}")
    told: dict[tuple[str, str], str] = {}
    for place, what in found:
        told.setdefault((path_of(lesson.model.spec, place) if place else "objective", what), place or "the loss")
    for (path, what), place in told.items():
        yield _judged(lesson, path, f"{what} at {place}", "a component that casts there")


@torch.no_grad()
def _far(lesson: Lesson) -> Iterator[Finding]:
    """What each scheme makes of the same vectors in bfloat16 and in float64, `_FAR` positions behind the start."""
    model, cast = lesson.model, copy.deepcopy(lesson.model).to(torch.bfloat16)
    place = torch.arange(LENGTH)[None]
    for name, tower in model.towers.items():
        for key, scheme in tower.schemes.items():
            room = _FAR if scheme.limit is None else min(_FAR, scheme.limit - LENGTH)
            for hook, x in _asked(lesson, scheme).items():
                right = getattr(scheme, hook)(x, Positions(place + room))
                half = getattr(cast.towers[name].schemes[key], hook)(x.to(torch.bfloat16), Positions(place + room))
                error = ((half.double() - right).abs().max() / right.abs().max()).item()
                if not error <= _ROUNDED:
                    path = path_of(model.spec, f"{name}.positions.{key}".strip("."))
                    found = f"position {_FAR} in bfloat16: off by {error:.1g} of the largest number ({hook})"
                    yield _judged(lesson, path, found, "a scheme that keeps its angles in float32")


def _judged(lesson: Lesson, path: str, found: str, other: str) -> Finding:
    """What fails in a run of half precision, and would in others."""
    if "16" in str(lesson.run.trainer.get("precision", "")):
        return Finding(Status.FAIL, 4, path, found, _RULE, f"trainer.precision=32-true, or {other}")
    rule = f"{_RULE}: it would matter with trainer.precision=bf16-mixed"
    return Finding(Status.WARN, 4, path, found, rule, other)


def _asked(lesson: Lesson, scheme: Position) -> dict[str, Tensor]:
    """The vectors that a scheme's hooks are first given in a pass, by hook."""
    given: dict[str, Tensor] = {}
    hooks = [hook for hook in ("embed", "rotate") if getattr(type(scheme), hook) is not getattr(Position, hook)]
    for hook in hooks:
        own = getattr(scheme, hook)

        def heard(x: Tensor, positions: Positions, own: Any = own, hook: str = hook) -> Tensor:
            given.setdefault(hook, x)
            return own(x, positions)

        setattr(scheme, hook, heard)
    try:
        lesson.model(lesson.specimen.tokens, **lesson.specimen.beside())
    finally:
        for hook in hooks:
            delattr(scheme, hook)
    return given


class Looking(TorchDispatchMode):
    """Counts the operations that need float32, and keeps the place of each that computes in half precision."""

    def __init__(self, names: dict[nn.Module, str]) -> None:
        super().__init__()
        self._names = names
        self.looked = 0
        self.found: list[tuple[str, str]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        what = _WHAT.get(func.overloadpacket)
        if what is not None and isinstance(args[0], Tensor) and args[0].is_floating_point():
            self.looked += 1
            if args[0].dtype in (torch.bfloat16, torch.float16):
                name = str(args[0].dtype).removeprefix("torch.")
                self.found.append((self._place(), f"{what} in {name} ({func.overloadpacket.__name__})"))
        return func(*args, **(kwargs or {}))

    def _place(self) -> str:
        """The name of the innermost module that is being called, "" where none is."""
        frame = sys._getframe(2)
        while frame is not None:
            module = frame.f_locals.get("self")
            if isinstance(module, nn.Module) and self._names.get(module):
                return self._names[module]
            frame = frame.f_back
        return ""
