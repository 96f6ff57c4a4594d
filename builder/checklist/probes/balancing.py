"""Whether what shall balance the experts acts on the router at all: by gradient, or by the preferences it moves."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import Tensor, nn

from builder.components.ffn import FFN
from builder.components.router import Router
from builder.finding import Finding, Status
from builder.layers import LayerSpec
from builder.model.language_model import LanguageModel

from . import Specimen

# A loss whose gradient at the router is less than the one, or more than the other, times that of predicting the next
# token: published coefficients are at 0.01 to 100 on these small copies.
_FAINT, _DEAFENING = 1e-4, 1e4
_SLOWEST = 1e-6  # at this speed a preference moves by a hundredth in 10,000 steps, and scores differ by more


def prove(specimen: Specimen) -> Iterator[Finding]:
    """For each kind of layer with a router: its losses have a gradient there, and a step's counts move preferences."""
    model = copy.deepcopy(specimen.model).train()
    with torch.random.fork_rng([]):
        torch.manual_seed(0)  # of jitter and noise
        output = model(specimen.tokens, **specimen.beside())
    task = F.cross_entropy((output.hidden @ model.embedding.weight.T)[0, :-1], specimen.tokens[0, 1:])
    for where, layer, block in _firsts(model):
        kind, place = str(layer), f"moe/{where}/{layer.index}/" if where else f"moe/{layer.index}/"
        losses = {name: loss for name, loss in output.aux.losses.items() if name.startswith(place)}
        parts = [part for part in output.aux.tallies if part in set(block.modules())]
        for part in parts:
            router = next(module for module in part.modules() if isinstance(module, Router))
            at = f"model.{ffn.slot}" if (ffn := layer.part("ffn")) else "model.pattern"
            for name, loss in losses.items():
                yield _judge_loss(kind, at, part, name.rpartition("/")[2], _pull(loss, router), _pull(task, router))
            yield from _preference(kind, at, part, router, output.aux.tallies[part])


def _firsts(model: LanguageModel) -> Iterator[tuple[str, LayerSpec, nn.Module]]:
    """The first layer of each kind of each tower: (tower, layer, block)."""
    for name, tower in model.towers.items():
        yield from ((name, alike[0], tower.layers[alike[0].index]) for alike in tower.spec.kinds.values())


def _pull(loss: Tensor, router: Router) -> float:
    """The size of the gradient of a loss at the router."""
    (gradient,) = torch.autograd.grad(loss, router.weight, retain_graph=True, allow_unused=True)
    return 0.0 if gradient is None else gradient.norm().item()


def _judge_loss(kind: str, at: str, part: FFN, name: str, pull: float, task: float) -> Finding:
    path = f"{at}.balance.{name}"
    found = (
        f"{kind}: {name} pulls the router {pull / task:.2g} times as hard as the task" if task else f"{kind}: {name}"
    )
    if pull <= 1e-12 * task or not pull:
        rule, fix = "it has no gradient there: a coefficient that changes nothing", _idle(at, part, name)
        return Finding(Status.WARN, 5, path, f"{kind}: {name}", rule, fix)
    if task and not _FAINT <= pull / task <= _DEAFENING:
        rule = "too weak to be felt" if pull < task else "it leaves the task no say in who goes where"
        return Finding(Status.WARN, 5, path, found, rule, f"{path} nearer to what was published")
    return Finding(Status.PASS, 5, path, found, "proven by its gradient on a small copy")


def _idle(at: str, part: Any, name: str) -> str:
    """What to write for a term that changes nothing: no balance at all, where nothing else balances."""
    try:
        type(part.balance).model_validate(part.balance.model_dump() | {name: 0.0})
        off = f"{at}.balance.{name}=0.0"
    except ValidationError:
        off = f"{at}.balance=false"
    return f"{off}, or more experts than {at}.top_k"


def _preference(kind: str, at: str, part: FFN, router: Router, tally: Tensor) -> Iterator[Finding]:
    if router.preference is None:
        return
    before = router.preference.clone()
    part.settle(tally)  # type: ignore[operator]
    moved, counts = router.preference - before, tally[: len(before)]
    right = torch.equal(moved.sign(), (counts.double().mean() - counts).sign().to(moved))
    found = f"{kind}: after a step the preferences {'point' if right else 'do not point'} to the idle experts"
    if not right:
        yield Finding(
            Status.FAIL, 5, f"{at}.balance.bias_speed", found, "settle moves them so", "see settle of the router"
        )
    elif (step := moved.abs().max().item()) < _SLOWEST:
        rule = f"by {step:.0e} a step: scores differ by so much more that nobody is chosen for it"
        yield Finding(Status.WARN, 5, f"{at}.balance.bias_speed", found, rule, f"{at}.balance.bias_speed=0.001")
    else:
        rule = "proven: up where fewer tokens went than in the mean, down where more"
        yield Finding(Status.PASS, 5, f"{at}.balance.bias_speed", found, rule)
