"""Who sees whom, by perturbation: change token j, of the text or of a source, and see which outputs move."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from builder.components.attention import Mixer
from builder.finding import Finding, Status
from builder.model.context import Aux, Context
from builder.model.mask import Mask
from builder.model.positions import Positions, count, count_real, count_within
from builder.model.source import Source
from builder.model.tower import Tower

from . import LENGTH, Specimen

FAINT = 1e-13
"""The part of the largest output that a token which is seen moves at least: a state that decays fast forgets most of
what is far behind, and in float64 what is left still shows."""
_PREFIX = 4
"""Tokens of the prefix, in a model that has one."""
_HIDDEN = 3
"""Tokens of a source that are padding, where it is seen whether they are read."""
_PLACE = torch.arange(LENGTH)[None]  # (1, T)
_FIX = "another mixer in this slot, or one that reads ctx.mask"
_BLIND = "a mixer that reads what its mask shows, and no scale or decay that leaves nothing of it"


@dataclass(frozen=True)
class Row:
    """What a pass is told of its row of tokens, by the model's own words, each (1, T); `what` says it in words."""

    what: str
    told: dict[str, Tensor]

    @property
    def real(self) -> Tensor:
        """Which outputs are asked for: those of pads say nothing, (T,) bool."""
        return self.told.get("attention_mask", torch.ones(1, LENGTH, dtype=torch.bool))[0]

    def of(self, rows: int) -> dict[str, Tensor]:
        """The same for so many rows."""
        return {name: value.expand(rows, -1) for name, value in self.told.items()}

    def mask(self, causal: bool, rows: int) -> Mask:
        """The mask that is declared of it."""
        told = self.of(rows)
        real, segments, prefix = (told.get(name) for name in ("attention_mask", "segments", "prefix"))
        return Mask(causal=causal, prefix=prefix, real=real, segments=segments)

    @property
    def positions(self) -> Positions:
        """Where its tokens stand."""
        if "segments" in self.told:
            return Positions(count_within(self.told["segments"]))
        if "attention_mask" in self.told:
            return Positions(count_real(self.told["attention_mask"]))
        return Positions(count(LENGTH, 0, torch.device("cpu")))


PLAIN = Row("", {})
_PADDED = Row("padded", {"attention_mask": (_PLACE >= 2) & (_PLACE < LENGTH - 1)})
_PACKED = Row("packed", {"segments": 1 + (_PLACE >= LENGTH // 2)})
_PREFIXED = Row(f"{_PREFIX} of them a prefix", {"prefix": _PLACE < _PREFIX})


def prove(specimen: Specimen) -> Iterator[Finding]:
    """The reach of each kind of layer of each tower, and of the whole model, against the declared mask."""
    for name, tower in specimen.model.towers.items():
        apart = () if name or specimen.rivals else (_PACKED,)  # where rows compete, the documents of one do too
        yield from _tower(specimen, name, tower, (PLAIN, _PADDED, *apart))
        if tower.spec.prefix:
            yield from _tower(specimen, name, tower, (_PREFIXED,))
    if specimen.source is not None:
        yield from _source(specimen, specimen.source)


def _tower(specimen: Specimen, name: str, tower: Tower, rows: Sequence[Row]) -> Iterator[Finding]:
    where = f" of the {name}" if name else ""
    for kind, alike in tower.spec.kinds.items():
        index, path, what = alike[0].index, f"model.{alike[0].mixer.slot}", f"each {kind} layer{where}"
        judged = [_blank(what, path, row, _seen(tower, index, row)) for row in rows]
        if not any(judged):
            reach = [_layer_reach(specimen, tower, index, row) for row in rows]
            judged = [
                _judge(what, row, change, _declared(tower, index, row), specimen.tolerance, path)
                for row, change in zip(rows, reach, strict=True)
            ]
        yield from _together([finding for finding in judged if finding], what, rows, path)
    judged = []
    for row in rows:
        whole = torch.eye(LENGTH, dtype=torch.bool)
        for index in range(len(tower.layers)):  # what a layer sees of what the layers before it saw
            whole = (_declared(tower, index, row).long() @ whole.long()) > 0
        reach = _model_reach(specimen, row) if not name else _tower_reach(specimen, tower, row)
        judged.append(_judge(f"the whole {name or 'model'}", row, reach, whole, specimen.tolerance))
    yield from _together(judged, f"the whole {name or 'model'}", rows, "model.pattern")


def _together(judged: Sequence[Finding], what: str, rows: Sequence[Row], path: str) -> Iterator[Finding]:
    """Those that are no PASS; where all are, one for all kinds of rows."""
    wrong = [finding for finding in judged if finding.status is not Status.PASS]
    yield from wrong
    if not wrong:
        said = ", ".join(row.what for row in rows if row.what)
        others = f", {said}" if PLAIN not in rows else f", of rows that are plain, {said}"
        rule = "proven: each token was changed, and just the outputs that may see it moved"
        yield Finding(Status.PASS, 2, path, f"{what} sees what its mask shows{others}", rule)


@torch.no_grad()
def _model_reach(specimen: Specimen, row: Row) -> Tensor:
    """change[i, j]: how far the output at i moves when token j changes, as a part of the largest; (T, T)."""
    rows = _changed(specimen, specimen.tokens)

    def passed(some: Tensor) -> Tensor:
        return specimen.out(specimen.model(some, **specimen.beside(len(some)), **row.of(len(some))))

    return changed_at(_passed(specimen, passed, rows))


@torch.no_grad()
def _tower_reach(specimen: Specimen, tower: Tower, row: Row) -> Tensor:
    """The same for what an encoder makes of its source."""
    rows = _changed(specimen, specimen.tokens)

    def passed(some: Tensor) -> Tensor:
        return tower(some, row.of(len(some)).get("attention_mask"), None, Aux()).hidden

    return changed_at(_passed(specimen, passed, rows))


def _passed(specimen: Specimen, run: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """All rows at once, or one by one where they would compete."""
    return torch.cat([run(some) for some in (rows.split(1) if specimen.rivals else (rows,))])


def _changed(specimen: Specimen, tokens: Tensor) -> Tensor:
    """The original, then one changed token a row: tokens (1, T) -> (T + 1, T)."""
    length = tokens.shape[1]
    rows, index = tokens.repeat(length + 1, 1), torch.arange(length)
    rows[index + 1, index] = (rows[index + 1, index] + 1) % specimen.model.vocab_size
    return rows


@torch.no_grad()
def _layer_reach(specimen: Specimen, tower: Tower, index: int, row: Row) -> Tensor:
    """The same for one layer by itself, on random vectors."""
    read = vectors(specimen, tower, seed=2)[:1]

    def passed(some: Tensor) -> Tensor:
        mask = row.mask(tower.spec.causal, len(some))
        return tower.layers[index](some, at(tower, index, mask, row.positions, read.expand(len(some), -1, -1)))

    return changed_at(_passed(specimen, passed, vectors(specimen, tower)))


@torch.no_grad()
def _reading_reach(specimen: Specimen, tower: Tower, index: int) -> Tensor:
    """change[i, j]: how far the output of one layer at i moves when vector j of what it reads changes; (T, S)."""
    read = vectors(specimen, tower)
    x = vectors(specimen, tower, seed=2)[:1].expand(len(read), -1, -1)
    return changed_at(tower.layers[index](x, at(tower, index, Mask(causal=tower.spec.causal), PLAIN.positions, read)))


def vectors(specimen: Specimen, tower: Tower, seed: int = 1) -> Tensor:
    """Random vectors (T + 1, T, D): the original, then one changed vector a row."""
    length, width = specimen.tokens.shape[1], tower.spec.d_model
    generator, place = torch.Generator().manual_seed(seed), torch.arange(length)
    rows = torch.randn(1, length, width, dtype=torch.float64, generator=generator).repeat(length + 1, 1, 1)
    rows[place + 1, place] = torch.randn(length, width, dtype=torch.float64, generator=generator)
    return rows


def at(tower: Tower, index: int, mask: Mask, positions: Positions, read: Tensor) -> Context:
    """What one layer is told, with `read` for a source where it reads one."""
    ctx = Context(positions, positions, mask, tower.schemes[tower.slots[index]], aux=Aux())
    if index not in tower.crossed:
        return ctx
    slot = tower.crossed[index]
    scheme: Any = None if slot is None else tower.schemes[slot]
    return replace(ctx, source=Source(read, PLAIN.positions, Mask(causal=False), scheme))


@torch.no_grad()
def _source(specimen: Specimen, source: Tensor) -> Iterator[Finding]:
    """Whether every output moves with every real token of the source, and with none that is padding."""
    model, tokens, length = specimen.model, specimen.tokens, source.shape[1]
    everything = torch.ones(tokens.shape[1], length, dtype=torch.bool)
    for kind, alike in model.spec.kinds.items():
        if alike[0].index in model.crossed:
            change = _reading_reach(specimen, model, alike[0].index)
            yield _judge(f"each {kind} layer, reading its source,", PLAIN, change, everything, specimen.tolerance)
    rows = _changed(specimen, source)  # (S + 1, S)
    for hidden in (0, _HIDDEN):
        real = (torch.arange(length) < length - hidden).expand(len(rows), -1)  # (S + 1, S)
        output = model(tokens.expand(len(rows), -1), source=rows, source_mask=real)
        declared = real[:1].expand(tokens.shape[1], -1)  # (T, S)
        what = "the whole source" if not hidden else f"a source that ends in {hidden} pads"
        change = changed_at(specimen.out(output))
        yield _judge(f"the model, reading {what},", PLAIN, change, declared, specimen.tolerance)


def changed_at(out: Tensor) -> Tensor:
    """change[i, j]: how far row j + 1 of out (T + 1, T, ...) is from the first at i, a part of the largest; (T, T)."""
    change = (out[1:] - out[0]).abs().amax(-1) / out.abs().max()  # (T changed, T)
    return change.nan_to_num(nan=torch.inf).T  # (T, T changed); NaN has moved


def _seen(tower: Tower, index: int, row: Row) -> Tensor:
    """What layer `index` may see by the mask, (T, T) bool."""
    mixer: Mixer = tower.layers[index].get_submodule("mixer")  # type: ignore[assignment]
    return mixer.sees(row.mask(tower.spec.causal, 1)).dense(LENGTH, LENGTH, torch.device("cpu"))[0, 0]


def _declared(tower: Tower, index: int, row: Row) -> Tensor:
    """The same, and itself through the residual stream."""
    return _seen(tower, index, row) | torch.eye(LENGTH, dtype=torch.bool)


def _blank(what: str, path: str, row: Row, seen: Tensor) -> Finding | None:
    """The failure of a layer by whose mask some real query sees no key at all."""
    blank = (~seen.any(-1) & row.real).nonzero().flatten().tolist()
    if not blank:
        return None
    found = f"{_worded(what, row)}: the query at {blank[0]} sees no key ({len(blank)} such queries)"
    return Finding(Status.FAIL, 2, path, found, "every real query sees at least one key (chapter 3.3)", _FIX)


def _judge(
    what: str, row: Row, change: Tensor, declared: Tensor, tolerance: float, path: str = "model.pattern"
) -> Finding:
    what = _worded(what, row)
    leaks = (~declared & (change > tolerance) & row.real[:, None]).nonzero().tolist()
    blind = (declared & (change <= FAINT) & row.real[:, None]).nonzero().tolist()
    if leaks:
        found = f"{what}: the output at {leaks[0][0]} moves with token {leaks[0][1]} ({len(leaks)} such pairs)"
        rule = "no output moves with a token that its mask hides: this one reads its own targets"
        return Finding(Status.FAIL, 2, path, found, rule, _FIX)
    if blind:
        found = f"{what}: the output at {blind[0][0]} ignores token {blind[0][1]} ({len(blind)} such pairs)"
        rule = "every output moves with each token that its mask shows"
        return Finding(Status.WARN, 2, path, found, rule, _BLIND)
    rule = "proven: each token was changed, and just the outputs that may see it moved"
    return Finding(Status.PASS, 2, path, f"{what} sees what its mask shows", rule)


def _worded(what: str, row: Row) -> str:
    return f"{what}, {row.what}" if row.what else what
