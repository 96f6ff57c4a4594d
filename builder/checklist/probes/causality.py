"""Who sees whom, by perturbation: change token j, of the text or of a source, and see which outputs move."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from builder.components.attention import Mixer
from builder.finding import Finding, Status
from builder.model.context import Aux, Context
from builder.model.mask import Mask
from builder.model.positions import Positions, count
from builder.model.source import Source
from builder.model.tower import Tower

from . import Specimen

FAINT = 1e-13
"""The part of the largest output that a token which is seen moves at least: a state that decays fast forgets most of
what is far behind, and in float64 what is left still shows."""
_PREFIX = 4
"""Tokens of the prefix, in a model that has one."""
_HIDDEN = 3
"""Tokens of a source that are padding, where it is seen whether they are read."""


def prove(specimen: Specimen) -> Iterator[Finding]:
    """The reach of each kind of layer of each tower, and of the whole model, against the declared mask."""
    for name, tower in specimen.model.towers.items():
        for prefix in (False, True) if tower.spec.prefix else (False,):
            yield from _tower(specimen, name, tower, prefix)
    if specimen.source is not None:
        yield from _source(specimen, specimen.source)


def _tower(specimen: Specimen, name: str, tower: Tower, prefix: bool) -> Iterator[Finding]:
    mask = _mask(specimen, tower, prefix)
    declared = [_declared(specimen, tower, index, mask) for index in range(len(tower.layers))]
    behind = f", {_PREFIX} of them a prefix" if prefix else ""
    where = f" of the {name}" if name else ""
    for kind, alike in tower.spec.kinds.items():
        index = alike[0].index
        change = _layer_reach(specimen, tower, index, mask)
        yield _judge(f"each {kind} layer{where}{behind}", change, declared[index], specimen.tolerance)
    whole = torch.eye(specimen.tokens.shape[1], dtype=torch.bool)
    for seen in declared:
        whole = (seen.long() @ whole.long()) > 0  # what a layer sees of what the layers before it saw
    reach = _model_reach(specimen, prefix) if not name else _tower_reach(specimen, tower)
    yield _judge(f"the whole {name or 'model'}{behind}", reach, whole, specimen.tolerance)


def _mask(specimen: Specimen, tower: Tower, prefix: bool) -> Mask:
    """What the tower declares of a pass over the specimen's tokens."""
    within = torch.arange(specimen.tokens.shape[1])[None] < _PREFIX if prefix else None  # (1, T)
    return Mask(causal=tower.spec.causal, prefix=within)


@torch.no_grad()
def _model_reach(specimen: Specimen, prefix: bool) -> Tensor:
    """change[i, j]: how far the output at i moves when token j changes, as a part of the largest; (T, T)."""
    rows = _changed(specimen, specimen.tokens)
    beside = specimen.beside(len(rows))
    if prefix:
        beside["prefix"] = (torch.arange(rows.shape[1]) < _PREFIX).expand(len(rows), -1)
    return _change(specimen.out(specimen.model(rows, **beside)))


@torch.no_grad()
def _tower_reach(specimen: Specimen, tower: Tower) -> Tensor:
    """The same for what an encoder makes of its source."""
    rows = _changed(specimen, specimen.tokens)
    return _change(tower(rows, None, None, Aux()).hidden)


def _changed(specimen: Specimen, tokens: Tensor) -> Tensor:
    """The original, then one changed token a row: tokens (1, T) -> (T + 1, T)."""
    length = tokens.shape[1]
    rows, index = tokens.repeat(length + 1, 1), torch.arange(length)
    rows[index + 1, index] = (rows[index + 1, index] + 1) % specimen.model.vocab_size
    return rows


@torch.no_grad()
def _layer_reach(specimen: Specimen, tower: Tower, index: int, mask: Mask) -> Tensor:
    """The same for one layer by itself, on random vectors."""
    rows, read = (
        _vectors(specimen, tower),
        _vectors(specimen, tower, seed=2)[:1].expand(specimen.tokens.shape[1] + 1, -1, -1),
    )
    if mask.prefix is not None:
        mask = replace(mask, prefix=mask.prefix.expand(len(rows), -1))
    return _change(tower.layers[index](rows, _at(tower, index, mask, read)))


@torch.no_grad()
def _reading_reach(specimen: Specimen, tower: Tower, index: int) -> Tensor:
    """change[i, j]: how far the output of one layer at i moves when vector j of what it reads changes; (T, S)."""
    read, x = (
        _vectors(specimen, tower),
        _vectors(specimen, tower, seed=2)[:1].expand(specimen.tokens.shape[1] + 1, -1, -1),
    )
    return _change(tower.layers[index](x, _at(tower, index, Mask(causal=tower.spec.causal), read)))


def _vectors(specimen: Specimen, tower: Tower, seed: int = 1) -> Tensor:
    """Random vectors (T + 1, T, D): the original, then one changed vector a row."""
    length, width = specimen.tokens.shape[1], tower.spec.d_model
    generator, place = torch.Generator().manual_seed(seed), torch.arange(length)
    rows = torch.randn(1, length, width, dtype=torch.float64, generator=generator).repeat(length + 1, 1, 1)
    rows[place + 1, place] = torch.randn(length, width, dtype=torch.float64, generator=generator)
    return rows


def _at(tower: Tower, index: int, mask: Mask, read: Tensor) -> Context:
    """What one layer is told, with `read` for a source where it reads one."""
    positions = Positions(count(read.shape[1], 0, read.device))
    ctx = Context(positions, positions, mask, tower.schemes[tower.slots[index]], aux=Aux())
    if index not in tower.crossed:
        return ctx
    slot = tower.crossed[index]
    return replace(
        ctx, source=Source(read, positions, Mask(causal=False), None if slot is None else tower.schemes[slot])
    )


@torch.no_grad()
def _source(specimen: Specimen, source: Tensor) -> Iterator[Finding]:
    """Whether every output moves with every real token of the source, and with none that is padding."""
    model, tokens, length = specimen.model, specimen.tokens, source.shape[1]
    for kind, alike in model.spec.kinds.items():
        if alike[0].index in model.crossed:
            change, everything = (
                _reading_reach(specimen, model, alike[0].index),
                torch.ones(tokens.shape[1], length) > 0,
            )
            yield _judge(f"each {kind} layer, reading its source,", change, everything, specimen.tolerance)
    rows = _changed(specimen, source)  # (S + 1, S)
    for hidden in (0, _HIDDEN):
        real = (torch.arange(length) < length - hidden).expand(len(rows), -1)  # (S + 1, S)
        output = model(tokens.expand(len(rows), -1), source=rows, source_mask=real)
        declared = real[:1].expand(tokens.shape[1], -1)  # (T, S)
        what = "the whole source" if not hidden else f"a source that ends in {hidden} pads"
        yield _judge(f"the model, reading {what}", _change(specimen.out(output)), declared, specimen.tolerance)


def _change(out: Tensor) -> Tensor:
    change = (out[1:] - out[0]).abs().amax(-1) / out.abs().max()  # (T changed, T)
    return change.nan_to_num(nan=torch.inf).T  # (T, T changed); NaN has moved


def _declared(specimen: Specimen, tower: Tower, index: int, mask: Mask) -> Tensor:
    """What layer `index` may see by the mask, and itself through the residual stream; (T, T) bool."""
    length = specimen.tokens.shape[1]
    mixer: Mixer = tower.layers[index].get_submodule("mixer")  # type: ignore[assignment]
    seen = mixer.sees(mask).dense(length, length, torch.device("cpu"))[0, 0]
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
