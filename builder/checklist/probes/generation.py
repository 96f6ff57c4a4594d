"""Whether a state changes the answer: prefill and decode in any split, and padding, against one full pass."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from builder.finding import Finding, Status

from . import Specimen

_SPLITS = ((1,) * 10, (4, 1, 1, 1, 1, 1, 1), (4, 3, 3), (9, 1))
_PADS = 3


@torch.no_grad()
def prove(specimen: Specimen) -> Iterator[Finding]:
    """The largest difference over all splits, and the one that padding makes."""
    if specimen.model.spec.causal:
        yield from _decoding(specimen)
    rule = "padding on either side changes nothing that is said of a real token"
    worst = max((_difference(*pair), side) for side, pair in _padded(specimen))
    yield _judge(specimen, worst[0], f"{_PADS} pads {worst[1]}", rule)


def _decoding(specimen: Specimen) -> Iterator[Finding]:
    full = specimen.out(specimen.model(specimen.tokens, **specimen.beside()))  # (1, T, V)
    worst = max((_difference(_in_parts(specimen, split), full), split) for split in _SPLITS)
    rule = "prefill and decode in any split give the logits of the full pass"
    yield _judge(specimen, worst[0], f"split {'+'.join(map(str, worst[1]))}", rule)
    if specimen.model.spec.prefix:
        prefix = torch.arange(specimen.tokens.shape[1])[None] < _SPLITS[1][0]  # (1, T)
        full = specimen.out(specimen.model(specimen.tokens, prefix=prefix))
        rule = "a prefix that is prefilled as a whole, and decode behind it, give the logits of the full pass"
        difference = _difference(_in_parts(specimen, _SPLITS[1], prefix), full)
        yield _judge(specimen, difference, f"a prefix of {_SPLITS[1][0]} tokens", rule)


def _in_parts(specimen: Specimen, split: tuple[int, ...], prefix: Tensor | None = None) -> Tensor:
    state = specimen.model.new_state(1, specimen.tokens.shape[1])
    outs, done = [], 0
    for part in specimen.tokens.split(split, dim=1):
        beside = {} if done else specimen.beside()
        if prefix is not None and not done:
            beside["prefix"] = prefix[:, : part.shape[1]]
        outs.append(specimen.out(specimen.model(part, state=state, **beside)))
        done += part.shape[1]
    return torch.cat(outs, dim=1)  # (1, T, V)


def _padded(specimen: Specimen) -> Iterator[tuple[str, tuple[Tensor, Tensor]]]:
    """What is said of real tokens beside pads, and without: in one pass, by prefill and decode, of a padded source."""
    model, text = specimen.model, specimen.tokens[:, _PADS:]
    alone = specimen.out(model(text, **specimen.beside()))
    pads = torch.zeros_like(text[:, :1]).expand(-1, _PADS)
    for side, tokens, first in (
        ("on the left", torch.cat((pads, text), dim=1), _PADS),
        ("on the right", torch.cat((text, pads), dim=1), 0),
    ):
        place = torch.arange(tokens.shape[1])[None]
        real, there = (place >= first) & (place < first + text.shape[1]), slice(first, first + text.shape[1])
        passed = model(tokens, attention_mask=real, **specimen.beside())
        yield side, (specimen.out(passed)[:, there], alone)
    if model.spec.causal:
        yield "on the left, with a state", (_decoded(specimen, torch.cat((pads, text), dim=1)), alone)
    if specimen.source is not None:
        kept = specimen.source[:, _PADS:]
        real = torch.arange(specimen.source.shape[1])[None] < kept.shape[1]
        source = torch.cat((kept, pads), dim=1)
        padded = specimen.out(model(specimen.tokens, source=source, source_mask=real))
        yield "behind the source", (padded, specimen.out(model(specimen.tokens, source=kept)))


def _decoded(specimen: Specimen, tokens: Tensor) -> Tensor:
    """What is said of the tokens behind the pads, by prefill and decode."""
    model, cut = specimen.model, _PADS + 2
    real = torch.arange(cut)[None] >= _PADS
    state = model.new_state(1, tokens.shape[1])
    prefill = model(tokens[:, :cut], attention_mask=real, state=state, **specimen.beside())
    decode = [model(tokens[:, i : i + 1], state=state) for i in range(cut, tokens.shape[1])]
    return torch.cat([specimen.out(output) for output in (prefill, *decode)], dim=1)[:, _PADS:]


def _difference(out: Tensor, full: Tensor) -> float:
    difference = ((out - full).abs().max() / full.abs().max()).item()
    return difference if math.isfinite(difference) else math.inf  # NaN is equal to nothing


def _judge(specimen: Specimen, difference: float, where: str, rule: str) -> Finding:
    found = f"relative difference {difference:.0e} ({where})"
    if difference > specimen.tolerance:
        fix = "the state, or positions that don't count real tokens"
        return Finding(Status.FAIL, 3, "model", found, rule, f"look at {fix}")
    return Finding(Status.PASS, 3, "model", found, f"proven: {rule}")
