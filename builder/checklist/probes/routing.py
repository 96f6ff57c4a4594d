"""Where tokens go before anything is learned: a small copy with every expert of the model routes a batch of them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from builder.experiments.load import Load
from builder.finding import Finding, Status
from builder.model.assemble import build
from builder.spec import ModelSpec

from . import shrink

_WIDTH, _ROWS = 64, 64
_DROPPED = 0.2  # a share of choices beyond which an expert layer is mostly a detour


def simulate(spec: ModelSpec, tokens: Tensor, what: str) -> Iterator[Finding]:
    """Load, drops and entropy of each kind of layer that routes, at init, on tokens (N,) of which `what` tells."""
    met, tokens = tokens.unique(return_inverse=True)  # rows of an untrained table are all alike: only these are drawn
    small = shrink(spec).model_copy(update={"d_model": _WIDTH, "vocab_size": len(met)})
    length = small.train_length
    rows = tokens[: _ROWS * length].unfold(0, length, length) if len(tokens) >= length else tokens[None]  # (B, T)
    with torch.random.fork_rng([]), torch.no_grad():
        torch.manual_seed(0)
        model = build(small, seed=0).train()
        beside = {} if model.encoder is None else {"source": rows}
        tallies = model(rows, **beside, logits=False).aux.tallies
    for tower in model.towers.values():
        for kind, alike in tower.spec.kinds.items():
            inside: set[nn.Module] = set(tower.layers[alike[0].index].modules())
            for module in (module for module in tallies if module in inside):
                ffn = alike[0].part("ffn")
                at = f"model.{ffn.slot}" if ffn else "model.pattern"
                yield _judge(kind, at, Load.of(tallies[module]), rows.numel(), what)


def _judge(kind: str, at: str, load: Load, count: int, what: str) -> Finding:
    experts = len(load.fractions)
    spread = f"max/mean {load.max_over_mean:.2f}, entropy {load.entropy:.2f} of 1"
    found = f"{kind}, {count:,} {what}: {spread}, {load.dropped:.0%} dropped, {load.dead} of {experts} dead"
    if load.dropped > _DROPPED:
        rule = "even before training so many choices find no expert"
        fix = f"{at}.capacity_factor=null, or a larger one, or {at}.overflow=reroute"
        return Finding(Status.WARN, 5, f"{at}.capacity_factor", found, rule, fix)
    return Finding(Status.PASS, 5, "model.pattern", found, "routing as it is at init: 1 and 1 are even")
