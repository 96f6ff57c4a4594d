"""What a training step takes in memory, before one is taken: the step of the run itself, played through.

Nothing is computed: tensors have shapes, dtypes and a device, and no storage (`watch`). Kernels, autograd, autocast and
the optimizer are torch's own and choose as they would; each storage counts from its making to its end. Of a deep model
few layers of each kind are played (`step`), and the others follow from them (`walk`), as does a text that is gone
through token by token from short ones (`lengths`). So whatever is built, is forecast: there is no formula of what a
component holds.

What a kernel takes while it runs (but for those of `workspaces`), the allocator's rounding, and the process itself are
not in it; compiled code, which keeps less, is forecast as if it weren't.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from builder.division import Division
from builder.spec import RunSpec

from .bytes import PARTS, Bytes
from .device import Device, device_of, memory
from .lengths import Texts
from .shares import gathered, share
from .step import Update, Work, update
from .walk import Walk
from .watch import Endless, Stretch

__all__ = [
    "PARTS",
    "SPARE",
    "Bytes",
    "Device",
    "Endless",
    "Forecast",
    "Forecaster",
    "forecast",
    "largest_micro_batch",
    "memory",
    "told",
]

SPARE = 0.9
"""The share of a device that a micro-batch is chosen to fill: fragments and the process itself want the rest."""


@dataclass(frozen=True)
class Forecast:
    """What one rank holds at the worst moment of a step.

    peak            by what holds it
    lasting         what is held between steps, and gradients, which no micro-batch makes smaller
    when            the part of the step that takes the most
    micro_batch     rows that are computed at once
    rows            rows that a rank computes in a step
    device          where
    """

    peak: Bytes
    lasting: Bytes
    when: str
    micro_batch: int
    rows: int
    device: Device

    @property
    def fits(self) -> bool | None:
        """Whether the device has as much; None: nobody knows what it has."""
        return None if self.device.memory is None else self.peak.total <= self.device.memory

    @property
    def roomy(self) -> bool:
        """Whether enough is left for what isn't forecast."""
        return self.device.memory is not None and self.peak.total <= SPARE * self.device.memory


class Forecaster:
    """Forecasts of one run, for micro-batches of any size: what doesn't depend on that is played through once."""

    def __init__(self, spec: RunSpec):
        self.spec = spec
        self.device, self.division = device_of(spec.trainer), Division.of(spec.trainer)
        self.rows = self.division.rows(spec.rows)
        self._made: dict[int, Forecast] = {}

    def recomputing(self) -> Forecaster:
        """Those of the same run, were activations computed again in the backward pass: its update stays as it is."""
        other = Forecaster(self.spec.model_copy(update={"activation_checkpointing": True}))
        other._update = self._update
        return other

    @property
    def chosen(self) -> int:
        """The rows at once that the run will have."""
        asked = self.spec.batch.micro_batch
        return self.largest() if asked == "auto" else asked or self.rows

    def at(self, micro_batch: int) -> Forecast:
        """The forecast with so many rows at once, or all that a rank has."""
        micro = min(micro_batch, self.rows)
        if micro not in self._made:
            self._made[micro] = self._of(micro)
        return self._made[micro]

    def largest(self) -> int:
        """What `largest_micro_batch` returns."""
        sizes = [size for size in range(1, self.rows + 1) if self.rows % size == 0]
        if self.device.memory is None:
            return sizes[-1]
        low, high = 0, len(sizes)  # sizes[low] is taken, sizes[high] doesn't fit
        guess = high - 1
        while high - low > 1:
            found = self.at(sizes[guess])
            low, high = (guess, high) if found.roomy else (low, guess)
            rise = max(1, found.peak.total - found.lasting.total)
            fitting = found.micro_batch * (SPARE * self.device.memory - found.lasting.total) / rise  # if it were a line
            guess = min(max(bisect_right(sizes, fitting) - 1, low + 1), high - 1)
        return sizes[low]

    def _of(self, micro: int) -> Forecast:
        walked = self._walked(micro)  # first: it may be endless
        update, division = self._update, self.division
        passing = gathered(division, update.dense if division.experts else update.layer, update.ends)
        moments = [(stretch.name, share(division, update.between + stretch.peak) + passing) for stretch in walked]
        left = walked[-1].end  # gradients, and what autocast still holds
        moments.append(("update", share(division, update.between + left + update.rise)))
        if division.buckets:  # they last; gradients of their own are there beside while micro-batches add up
            own = 0 if micro == self.rows else 1
            moments = [
                (name, replace(held, gradients=own * held.gradients) + update.gradients) for name, held in moments
            ]
        when, peak = max(moments, key=lambda moment: moment[1].total)
        return Forecast(peak, share(division, update.between + update.gradients), when, micro, self.rows, self.device)

    def _walked(self, micro: int) -> list[Stretch]:
        """The passes of a step, one after the other, beside what is held between steps."""
        walked: list[Stretch] = []
        for played in self._texts.passes(self._work(micro)):
            walked += self._walk.through(played, walked[-1].end if walked else Bytes(activations=self._read))
        return walked

    @property
    def _read(self) -> int:
        """Bytes of what a step reads."""
        objective: Any = self.spec.objective.component
        batch = objective(self.spec.objective).blank(self.rows, self.spec.model.train_length, "meta")
        return sum(part.nbytes for part in batch.values())

    @cached_property
    def _walk(self) -> Walk:
        return Walk(self.spec.model)

    @cached_property
    def _texts(self) -> Texts:
        return Texts(self.spec, self._walk.shallow)

    @cached_property
    def _update(self) -> Update:
        work = self._work(self.rows)
        played = [(update(self.spec, model, work), times) for model, times in self._walk.depths()]
        whole, _ = shallow, _ = played[0]
        for deeper, times in played[1:]:
            whole = whole.grown(shallow, deeper, times)
        return whole

    def _work(self, micro: int) -> Work:
        return Work(self.rows, micro, self.device.kind, str(self.spec.trainer.get("precision") or "32-true"))


def forecast(spec: RunSpec) -> Forecast:
    """What a rank of this run holds at the worst moment of a step, with the micro-batch that it will have."""
    forecaster = Forecaster(spec)
    return forecaster.at(forecaster.chosen)


def largest_micro_batch(spec: RunSpec) -> int:
    """How many rows a rank should compute at once: the most, of those that divide its rows, whose forecast leaves a
    tenth of the device; 1 if none do, and all where nobody can tell what the device has."""
    return Forecaster(spec).largest()


def told(count: int) -> str:
    """So many bytes, as people read them."""
    power = min(max(count.bit_length() - 1, 0) // 10, 4)
    return f"{count / 1024**power:.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"
