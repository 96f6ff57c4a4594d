"""Whether order is told as the position scheme says: all positions moved at once, and tokens that change places."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from builder.components.attention import Mixer
from builder.finding import Finding, Status
from builder.model.mask import Mask

from . import LENGTH, Specimen

_SHIFT = 3
_ROUNDED = 1e-5
"""What angles made in float32 may differ by, as a part of the largest output: they turn float64 vectors."""


@torch.no_grad()
def prove(specimen: Specimen) -> Iterator[Finding]:
    """Schemes of distances feel no shift, those of places do; and tokens that change places change what is said."""
    if all(slot is None for slot in specimen.model.crossed.values()):  # distances to a source change with a shift
        yield _shifted(specimen)
    if any(window is None or window > 1 for window in _windows(specimen)):  # who sees itself alone reads no order
        yield _swapped(specimen)


def _windows(specimen: Specimen) -> Iterator[int | None]:
    for block in specimen.model.layers:
        mixer: Mixer = block.get_submodule("mixer")  # type: ignore[assignment]
        yield mixer.sees(Mask()).window


def _shifted(specimen: Specimen) -> Finding:
    model, tokens = specimen.model, specimen.tokens[:, : LENGTH - _SHIFT]
    places = torch.arange(LENGTH - _SHIFT)[None]  # (1, T)
    here, there = (
        specimen.out(model(tokens, positions=start, **specimen.beside())) for start in (places, places + _SHIFT)
    )
    moved = _moved(here, there)
    absolute = {type(scheme).__name__: None for scheme in model.schemes.values() if not scheme.relative}
    found = f"all positions {_SHIFT} further: relative difference {moved:.0e}"
    if absolute:
        felt, names = moved > _ROUNDED, " and ".join(absolute)
        rule = f"proven: {names} tells places" if felt else f"{names} tells places, and nothing reads them"
        fix = "" if felt else "model/position=none"
        return Finding(Status.PASS if felt else Status.FAIL, 3, "model.position", found, rule, fix)
    if moved <= _ROUNDED:
        return Finding(Status.PASS, 3, "model.position", found, "proven: distances count, and places don't")
    rule = "a scheme of distances says the same when all positions move at once"
    return Finding(Status.FAIL, 3, "model.position", found, rule, "another model/position: this one tells places")


def _swapped(specimen: Specimen) -> Finding:
    """The first two tokens change places, and what is said behind them should too."""
    model, tokens = specimen.model, specimen.tokens.clone()
    tokens[:, 1] = (tokens[:, 0] + 1) % model.vocab_size  # of equal ones nobody could tell
    other = tokens.clone()
    other[:, :2] = tokens[:, :2].flip(1)
    here, there = (specimen.out(model(row, **specimen.beside()))[:, 2:] for row in (tokens, other))
    moved = _moved(here, there)
    found = f"the first two tokens in each other's place: relative difference {moved:.0e}"
    if moved > specimen.tolerance:
        return Finding(Status.PASS, 3, "model.position", found, "proven: the order of what is read is told")
    rule = "nothing tells the order of tokens: a text is read as a bag of words (chapter 3.6)"
    return Finding(Status.WARN, 3, "model.position", found, rule, "model/position=rope, or another scheme")


def _moved(here: Tensor, there: Tensor) -> float:
    return ((there - here).abs().max() / here.abs().max()).nan_to_num(nan=torch.inf).item()
