"""What a validation finds: losses summed by source, and the figures that they make, under the names that are logged."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from builder.data.corpus import Corpus

from .objective import Objective

if TYPE_CHECKING:
    from builder.spec import RunSpec

Judged = tuple[Tensor, Tensor, dict[str, Tensor]]
"""What Losses.judged says of a pass: the summed loss, how many targets count, and the sums of an objective."""

STEPS = (
    *("train/loss", "train/aux_loss", "optim/lr", "optim/grad_norm"),
    *("perf/tokens_per_second", "perf/waiting", "perf/mfu", "perf/peak_memory_gib"),
)
"""What is logged of steps; train/aux_loss where layers have losses of their own, perf/mfu where a peak is stated."""


@dataclass(frozen=True)
class Watch:
    """A callback at a path of the config, `monitor` the metric that it watches, and whether it takes its min or max."""

    path: str
    monitor: str
    mode: str


def watched(spec: RunSpec) -> list[Watch]:
    """What the callbacks of a run watch, of the best checkpoint, of early stopping and of any other."""
    nodes = {f"callbacks.{name}": node for name, node in spec.callbacks.items() if node.get("monitor") is not None}
    return [Watch(path, node["monitor"], node.get("mode", "min")) for path, node in nodes.items()]


class Found:
    """Sums over the passes of a validation, each of rows of one source; nothing waits for a device before `figures`.

    val/loss = sum_p nats_p / sum_p targets_p over all passes p; val/<source>/loss the same over those of a source
    """

    def __init__(self, objective: Objective, corpus: Corpus):
        self.objective, self.corpus = objective, corpus
        self._passes: dict[int, list[Tensor]] = defaultdict(list)  # by source: (2,), summed loss and targets
        self._sums: dict[str, Tensor] = {}
        self.unread: tuple[str, ...] = ()
        """The sources of which no target was read, by `figures`: they have no loss."""

    def add(self, source: int, judged: Judged) -> None:
        """Counts a pass over rows of the source of that number."""
        total, targets, sums = judged
        self._passes[source].append(torch.stack([total, targets]))
        for name, value in sums.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value

    def figures(self, everyone: Callable[[Tensor], Tensor] = lambda value: value) -> dict[str, float]:
        """The figures by their names, val/...; `everyone` sums a tensor over ranks, all of which read the same sources.

        Losses are in nats per target. No source's is told of which no target was read.
        """
        parts = self.corpus.val.parts
        nothing = next(iter(self._passes.values()))[0].new_zeros(2)
        passes = [torch.stack(self._passes.get(part, [nothing])).double().sum(0) for part in range(len(parts) or 1)]
        summed = everyone(torch.stack(passes))  # (sources, 2)
        by_source, (total, targets) = summed.tolist(), summed.sum(0).tolist()
        loss = total / targets if targets else math.nan
        told = {"val/loss": loss}
        sums = {name: everyone(value.double()) for name, value in self._sums.items()}
        told |= {f"val/{name}": value for name, value in self.objective.metrics(sums, targets).items()}
        if self.objective.language:
            told["val/perplexity"] = math.exp(min(loss, 700.0))
        if (size := self.corpus.val_bytes_per_token) is not None:
            told["val/bits_per_byte"] = loss / math.log(2) / size
        each = dict(zip(parts, by_source, strict=False))  # none where the rows are of one source
        self.unread = tuple(part for part, (_, count) in each.items() if not count)
        return told | {loss_of(part): nats / count for part, (nats, count) in each.items() if count}


def loss_of(source: str) -> str:
    """What the validation loss of a source is called: what is measured stands last, as in all names."""
    return f"val/{source}/loss"


def names(spec: RunSpec, corpus: Corpus | None = None) -> Iterator[str]:
    """The names of all that a run logs and callbacks can read, but for what they log themselves and layers report;
    without its data, those that some data has too."""
    objective: Any = spec.objective.component
    data: Any = spec.data
    yield "val/loss"
    yield from (f"val/{name}" for name in objective.figures if not spec.fused_loss)
    if objective.language:
        yield "val/perplexity"
    if corpus is None or corpus.val_bytes_per_token is not None:
        yield "val/bits_per_byte"
    yield from (loss_of(part) for part in data.parts)
    yield from STEPS
    if spec.guard is not None:
        yield "optim/skipped"
