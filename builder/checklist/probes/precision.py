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
_PLAIN = "where nothing asks for half precision, nothing is rounded to it"
_FAR = 1000
_ROUNDED = 0.03
"""What the rounding of bfloat16, a part in 256, may change of a vector that is turned or moved, in several steps."""
_HALF = (torch.bfloat16, torch.float16)
_KEEN = {
    "angles": ("sin", "cos"),
    "a softmax": ("_softmax", "_log_softmax", "logsumexp"),
    "statistics": ("mean", "var", "var_mean", "std", "sqrt", "rsqrt", "linalg_vector_norm"),
    "decays": ("exp", "exp2", "expm1", "log", "log1p"),
    "sums along a sequence": ("cumsum", "cumprod", "logcumsumexp"),
}
"""What loses its meaning in bfloat16, whose numbers are a part in 256 apart: by what it is made for. An operation in
place is the same one."""
_WHAT = {op: what for what, ops in _KEEN.items() for op in ops}
_SUMS = ("sum", "mean")


def prove(lesson: Lesson) -> Iterator[Finding]:
    """A forward pass and its loss with weights in bfloat16, with float32 weights under autocast, and with these alone;
    and each position scheme far from the start, where numbers of bfloat16 are a whole turn apart."""
    yield from _far(lesson)
    cast, mixed, plain = (_looked(lesson, *how) for how in ((True, False), (False, True), (False, False)))
    if not (cast.found or mixed.found or plain.rounded):
        what = (
            f"{cast.looked + mixed.looked} operations that need float32 have it, with weights in bfloat16 and under "
            "autocast"
        )
        yield Finding(Status.PASS, 4, "trainer.precision", what, f"proven: {_RULE}")
    for path, what in _told(lesson, [*cast.found, *mixed.found]):
        yield _judged(lesson, path, what, "a component that casts there")
    for path, what in _told(lesson, plain.rounded):
        status, rule = (
            (Status.WARN, f"{_PLAIN}: it would matter in float32") if _halved(lesson) else (Status.FAIL, _PLAIN)
        )
        yield Finding(status, 4, path, what, rule, "a component that keeps the dtype it is given")


def _looked(lesson: Lesson, cast: bool, mixed: bool) -> Looking:
    """A forward pass and its loss, looked at: with weights that are `cast` to bfloat16, or under autocast (`mixed`)."""
    model = copy.deepcopy(lesson.model).to(torch.bfloat16 if cast else torch.float32).train()
    names: dict[nn.Module, str] = {module: name for name, module in model.named_modules()}
    with torch.random.fork_rng([]), torch.no_grad():
        torch.manual_seed(0)
        with Looking(names) as looking, torch.autocast("cpu", torch.bfloat16) if mixed else nullcontext():
            lesson.loss(model, lesson.tasks[0])
    return looking


def _told(lesson: Lesson, found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """(path, what was found at its first place) of what was found at (place, what), each once."""
    told: dict[tuple[str, str], str] = {}
    for place, what in found:
        told.setdefault((path_of(lesson.model.spec, place) if place else "objective", what), place or "the loss")
    return [(path, f"{what} at {place}") for (path, what), place in told.items()]


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
    if _halved(lesson):
        return Finding(Status.FAIL, 4, path, found, _RULE, f"trainer.precision=32-true, or {other}")
    rule = f"{_RULE}: it would matter with trainer.precision=bf16-mixed"
    return Finding(Status.WARN, 4, path, found, rule, other)


def _halved(lesson: Lesson) -> bool:
    """Whether the run asks for half precision."""
    return "16" in str(lesson.run.trainer.get("precision", ""))


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
    """Counts the operations that need float32, and keeps (place, what) of each that computes in half precision; and of
    each that gives half precision though it was given none, in `rounded`.
    """

    def __init__(self, names: dict[nn.Module, str]) -> None:
        super().__init__()
        self._names = names
        self._squares: dict[int, Tensor] = {}  # by storage: none is freed while it is looked for
        self.looked = 0
        self.found: list[tuple[str, str]] = []
        self.rounded: list[tuple[str, str]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out, first, name = func(*args, **(kwargs or {})), args[0] if args else None, _name(func)
        if isinstance(first, Tensor) and first.is_floating_point():
            half = first.dtype in _HALF
            if (what := self._keen(name, first)) is not None:
                self.looked += 1
                if half:
                    self.found.append((self._place(), f"{what} in {_told_dtype(first)} ({name})"))
            if half and _squares(name, args):
                self._squares[out.untyped_storage()._cdata] = out
            if not half and isinstance(out, Tensor) and out.dtype in _HALF:
                self.rounded.append((self._place(), f"rounded to {_told_dtype(out)} ({name})"))
        return out

    def _keen(self, name: str, first: Tensor) -> str | None:
        """What an operation is made for, if it needs float32: a sum does where it is one of squares."""
        if name in _SUMS and first.untyped_storage()._cdata in self._squares:
            return "statistics"
        return _WHAT.get(name)

    def _place(self) -> str:
        """The name of the innermost module that is being called, "" where none is."""
        frame = sys._getframe(2)
        while frame is not None:
            module = frame.f_locals.get("self")
            if isinstance(module, nn.Module) and self._names.get(module):
                return self._names[module]
            frame = frame.f_back
        return ""


def _name(func: Any) -> str:
    return func.overloadpacket.__name__.removesuffix("_")


def _told_dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _squares(op: str, args: Any) -> bool:
    """Whether an operation squares what it is given."""
    if op == "pow":
        return not isinstance(args[1], Tensor) and args[1] == 2
    return op == "mul" and args[0] is args[1]
