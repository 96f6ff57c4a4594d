"""Whether what shall balance the experts acts on the router at all: by gradient, or by the preferences it moves."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch

from builder.components.ffn import FFN
from builder.components.router import Router
from builder.finding import Finding, Status

from . import Specimen


def prove(specimen: Specimen) -> Iterator[Finding]:
    """For each kind of layer with a router: its losses have a gradient there, and a step's counts move preferences."""
    model = copy.deepcopy(specimen.model).train()
    with torch.random.fork_rng([]):
        torch.manual_seed(0)  # of jitter and noise
        aux = model(specimen.tokens).aux
    for kind, alike in model.spec.kinds.items():
        layer = alike[0].index
        losses = {name: loss for name, loss in aux.losses.items() if name.startswith(f"moe/{layer}/")}
        parts = [part for part in aux.tallies if part in set(model.layers[layer].modules())]
        for part in parts:
            router = next(module for module in part.modules() if isinstance(module, Router))
            for name, loss in losses.items():
                yield _judge_loss(kind, name.rpartition("/")[2], loss, router)
            yield from _preference(kind, part, router, aux.tallies[part])


def _judge_loss(kind: str, name: str, loss: torch.Tensor, router: Router) -> Finding:
    (gradient,) = torch.autograd.grad(loss, router.weight, retain_graph=True, allow_unused=True)
    size = 0.0 if gradient is None else gradient.abs().max().item()
    if size <= 1e-12 * loss.abs().item():
        found, rule = f"{kind}: {name} has no gradient at the router", "a coefficient that changes nothing"
        return Finding(Status.WARN, 5, "model.pattern", found, rule, f"{name}=0.0, or more experts than top_k")
    return Finding(Status.PASS, 5, "model.pattern", f"{kind}: {name} moves the router", "proven by its gradient")


def _preference(kind: str, part: FFN, router: Router, tally: torch.Tensor) -> Iterator[Finding]:
    if router.preference is None:
        return
    before = router.preference.clone()
    part.settle(tally)  # type: ignore[operator]
    moved, counts = router.preference - before, tally[: len(before)]
    right = torch.equal(moved.sign(), (counts.double().mean() - counts).sign().to(moved))
    found = f"{kind}: after a step the preferences {'point' if right else 'do not point'} to the idle experts"
    rule = "proven: up where fewer tokens went than in the mean, down where more" if right else "settle moves them so"
    yield Finding(Status.PASS if right else Status.FAIL, 5, "model.pattern", found, rule, "" if right else "see settle")
