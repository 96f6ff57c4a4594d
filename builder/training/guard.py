"""Steps that would harm a run: their gradient or their loss is no number, or far above what is usual."""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import Any

import torch
from torch import Tensor

from builder.errors import ArchlabError
from builder.sections import GuardSpec

ENOUGH = 16
"""Accepted steps before a ratio is judged, or the whole window where it is shorter: a median of fewer says little."""

_SAID = {"grad_norm": "the norm of the gradient", "loss": "the loss"}


class Spike(ArchlabError):
    """A step that was refused, and with it the run."""


class Guard:
    """Judges each step before it is taken; what it remembers are the norms and losses of the steps it accepted.

    Both are waited for in every step, so on a GPU each step ends with a wait for the device. They must be those of all
    ranks together: where ranks differ, one would skip a step that another takes.
    """

    def __init__(self, spec: GuardSpec):
        self.spec = spec
        self.skipped = 0  # steps that were refused by now,
        self._in_a_row = 0  # and those of them since the last accepted one
        self._seen = {name: deque[float](maxlen=spec.window) for name in _SAID}

    def judge(self, norm: Tensor, loss: Tensor, step: int) -> str | None:
        """Why a step is refused, given the norm of its whole gradient before clipping and its loss; None: it is not.

        Neither may be infinite or NaN, nor above its ratio times the median of the last `window` accepted steps, once
        `ENOUGH` were accepted. Where the median isn't above 0, a ratio says nothing.
        """
        values = dict(zip(_SAID, torch.stack([norm.detach(), loss.detach()]).tolist(), strict=True))
        for name, value in values.items():
            if not math.isfinite(value):
                return f"{_SAID[name]} is {value} in step {step}"
        for name, ratio in (("grad_norm", self.spec.grad_norm), ("loss", self.spec.loss)):
            usual = self._usual(name)
            if ratio is not None and usual > 0 and values[name] > ratio * usual:
                past = f"the median of the last {len(self._seen[name])} accepted steps"
                return f"{_SAID[name]} is {values[name]:.4g} in step {step}, above {ratio:g} times {usual:.4g}, {past}"
        for name, value in values.items():
            self._seen[name].append(value)
        self._in_a_row = 0
        return None

    def refuse(self, reason: str) -> None:
        """Counts a step that `judge` refused; raises Spike where the run ends with it.

        So it does, whatever the action, after a whole window of refused steps: what was usual doesn't come back.
        """
        self.skipped += 1
        self._in_a_row += 1
        start = "start a new run with a lower optimizer.lr or a longer schedule.warmup_steps"
        if self.spec.action == "stop":
            raise Spike(f"guard: {reason}; no weight has moved in it; {start}, or with guard.action=skip")
        if self._in_a_row >= self.spec.window:
            rule = f"{self._in_a_row} steps in a row were refused, a whole guard.window"
            raise Spike(f"guard: {reason}; {rule}; {start}, or with a higher ratio if these are no spikes")

    def state_dict(self) -> dict[str, Any]:
        """All that it knows, in plain Python."""
        return {"skipped": self.skipped, "in_a_row": self._in_a_row} | {
            name: list(seen) for name, seen in self._seen.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what `state_dict` gave."""
        self.skipped, self._in_a_row = state["skipped"], state["in_a_row"]
        for name, seen in self._seen.items():
            seen.clear()
            seen.extend(state[name])

    def _usual(self, name: str) -> float:
        """The median to compare with, 0 where too little was accepted yet."""
        seen = self._seen[name]
        return median(seen) if len(seen) >= min(ENOUGH, self.spec.window) else 0.0
