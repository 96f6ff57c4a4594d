"""FLOPs of a forward pass, counted by torch's own counter on the meta device."""

from __future__ import annotations

from collections import Counter

import torch
from torch.utils.flop_counter import FlopCounterMode

from builder.model.assemble import build
from builder.spec import ModelSpec


def forward_flops(spec: ModelSpec) -> int:
    """FLOPs of one sequence of train_length tokens through the whole model.

    Each distinct layer is counted once and multiplied, since counting 80 equal layers takes seconds:
    F = F(no layers) + sum over pattern entries of (layers like it) (F(that layer alone) - F(no layers)).
    """
    entries = [spec.pattern[index % len(spec.pattern)] for index in range(spec.n_layers)]
    bare = _count(spec.model_copy(update={"n_layers": 0}))
    alone = {entry: spec.model_copy(update={"n_layers": 1, "pattern": (entry,)}) for entry in entries}
    return bare + sum(many * (_count(alone[entry]) - bare) for entry, many in Counter(entries).items())


@torch.no_grad()
def _count(spec: ModelSpec) -> int:
    model = build(spec, device="meta").eval()
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, spec.train_length, dtype=torch.long, device="meta"))
    return counter.get_total_flops()
