"""Who sees whom, by perturbation: change token j, and see which outputs move."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from builder.components.attention import Mixer
from builder.finding import Finding, Status
from builder.model.context import Aux, Context
from builder.model.mask import Mask
from builder.model.positions import Positions, count

from . import Specimen

FAINT = 1e-13
"""The part of the largest output that a token which is seen moves at least: a state that decays fast forgets most of
what is far behind, and in float64 what is left still shows."""


def prove(specimen: Specimen) -> Iterator[Finding]:
    """The reach of each kind of layer and of the whole model, against the declared mask."""
    declared = [_declared(specimen, index) for index in range(len(specimen.model.layers))]
    for kind, alike in specimen.model.spec.kinds.items():
        index = alike[0].index
        yield _judge(f"each {kind} layer", _layer_reach(specimen, index), declared[index], specimen.tolerance)
    whole = torch.eye(specimen.tokens.shape[1], dtype=torch.bool)
    for mask in declared:
        whole = (mask.long() @ whole.long()) > 0  # what a layer sees of what the layers before it saw
    yield _judge("the whole model", _model_reach(specimen), whole, specimen.tolerance)


@torch.no_grad()
def _model_reach(specimen: Specimen) -> Tensor:
    """change[i, j]: how far the logits at i move when token j changes, as a part of the largest; (T, T)."""
    length = specimen.tokens.shape[1]
    rows = specimen.tokens.repeat(length + 1, 1)  # (T + 1, T): the original, then one changed token a row
    index = torch.arange(length)
    rows[index + 1, index] = (rows[index + 1, index] + 1) % specimen.model.vocab_size
    return _change(specimen.model(rows).logits)


@torch.no_grad()
def _layer_reach(specimen: Specimen, index: int) -> Tensor:
    """The same for one layer by itself, on random vectors."""
    model, length = specimen.model, specimen.tokens.shape[1]
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(1, length, model.spec.d_model, dtype=torch.float64, generator=generator)
    rows = x.repeat(length + 1, 1, 1)  # (T + 1, T, D)
    place = torch.arange(length)
    rows[place + 1, place] = torch.randn(length, model.spec.d_model, dtype=torch.float64, generator=generator)
    positions = Positions(count(length, 0, x.device))
    mask, scheme = Mask(causal=model.spec.causal), model.positions[model.slots[index]]
    ctx = Context(positions, positions, mask, scheme, aux=Aux())  # type: ignore[arg-type]
    return _change(model.layers[index](rows, ctx))


def _change(out: Tensor) -> Tensor:
    change = (out[1:] - out[0]).abs().amax(-1) / out.abs().max()  # (T changed, T)
    return change.nan_to_num(nan=torch.inf).T  # (T, T changed); NaN has moved


def _declared(specimen: Specimen, index: int) -> Tensor:
    """What layer `index` may see by the mask, and itself through the residual stream; (T, T) bool."""
    length = specimen.tokens.shape[1]
    mixer: Mixer = specimen.model.layers[index].get_submodule("mixer")  # type: ignore[assignment]
    seen = mixer.sees(Mask(causal=specimen.model.spec.causal)).dense(length, length, torch.device("cpu"))[0, 0]
    return seen | torch.eye(length, dtype=torch.bool)


def _judge(what: str, change: Tensor, declared: Tensor, tolerance: float) -> Finding:
    leaks = (~declared & (change > tolerance)).nonzero().tolist()
    blind = (declared & (change <= FAINT)).nonzero().tolist()
    if leaks:
        found = f"{what}: the output at {leaks[0][0]} moves with token {leaks[0][1]} ({len(leaks)} such pairs)"
        rule = "no output moves with a token that its mask hides: this one reads its own targets"
        return Finding(Status.FAIL, 2, "model.pattern", found, rule, "the mixer must read ctx.mask")
    if blind:
        found = f"{what}: the output at {blind[0][0]} ignores token {blind[0][1]} ({len(blind)} such pairs)"
        return Finding(Status.WARN, 2, "model.pattern", found, "every output moves with each token that its mask shows")
    rule = "proven: each token was changed, and just the outputs that may see it moved"
    return Finding(Status.PASS, 2, "model.pattern", f"{what} sees what its mask shows", rule)
