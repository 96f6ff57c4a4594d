"""The passes over a long text from those over short ones, where what goes token by token has too many operations.

What a pass holds at each moment is made of tensors with the length on no axis, on one, or on two: a polynomial of
degree 2 of the length, which three lengths tell; and three others, whether they do.
"""

from __future__ import annotations

from builder.spec import ModelSpec, RunSpec

from . import watch
from .bytes import Bytes
from .step import Work, passes
from .watch import Endless, Stretch

_STEP = 8
"""Tokens that a short length is a multiple of, but for the rest that the long one leaves."""

_TIMES = (2, 3, 4, 5)
"""Of how many equal parts they are: the last three tell the long one, and the first three the same."""

_WRONG = 0.02
"""By how much of what is held at most the two may differ."""

_LONG = 1000
"""Operations of a stretch: one has more where something goes through a text step by step."""

Passes = list[list[Stretch]]


class Texts:
    """`step.passes` of a model over texts of its length, however long that is."""

    def __init__(self, spec: RunSpec, model: ModelSpec):
        self._spec, self._model = spec, model
        self._long = False  # known once: the operations are as many for any number of rows

    def passes(self, work: Work) -> Passes:
        """Raises Endless where they have too many operations, and short texts don't tell them."""
        if not self._long:
            try:
                return passes(self._spec, self._model, work)
            except Endless as endless:
                if endless.longest < _LONG or self._spec.fused_loss:  # whose pieces are as long for any text
                    raise
                self._long = True
        part = self._part(work)
        times, rest = divmod(self._model.train_length, part)
        told = [self._at(work, each * part + rest) for each in _TIMES]
        before, found = _grown(told[:-1], times - _TIMES[0]), _grown(told[1:], times - _TIMES[1])
        if abs(_most(before) - _most(found)) > _WRONG * _most(found):
            raise Endless(_LONG)
        return found

    def _part(self, work: Work) -> int:
        """Of how many tokens each part of the short lengths is: as many as can be played, the more the better."""
        allowed = watch.MOST // 2 * (1 if work.micro >= work.rows else 2)  # so many passes are played
        few, more = (_operations(self._at(work, times * _STEP, allowed // 3)) for times in (1, 2))
        if few == more:  # chunk by chunk, of many tokens each
            raise Endless(_LONG)
        longest = min(allowed * _STEP // (more - few), self._model.train_length)
        if (part := longest // (_TIMES[-1] + 1) // _STEP * _STEP) == 0:  # with the rest they are longer by a part
            raise Endless(_LONG)
        return part

    def _at(self, work: Work, length: int, most: int | None = None) -> Passes:
        return passes(self._spec, self._model.model_copy(update={"train_length": length}), work, most)


def _grown(told: list[Passes], steps: int) -> Passes:
    """What three passes tell of one that is `steps` parts longer than the first of them."""
    return [[_next(stretches, steps) for stretches in zip(*alike, strict=True)] for alike in zip(*told, strict=True)]


def _next(stretches: tuple[Stretch, ...], steps: int) -> Stretch:
    first, second, third = stretches
    start = _newton((first.start, second.start, third.start), steps)
    peak = _newton((first.peak, second.peak, third.peak), steps)
    return Stretch(first.name, start, peak, _newton((first.end, second.end, third.end), steps))


def _newton(held: tuple[Bytes, Bytes, Bytes], steps: int) -> Bytes:
    """The polynomial through what was held at three lengths."""
    a, b, c = held
    rise, bend = b - a, c - b - (b - a)
    return a + rise * steps + bend * (steps * (steps - 1) // 2)


def _operations(played: Passes) -> int:
    return sum(stretch.operations for each in played for stretch in each)


def _most(told: Passes) -> int:
    return max(stretch.peak.total for each in told for stretch in each)
