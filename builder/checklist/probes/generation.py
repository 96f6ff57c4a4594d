"""Whether a state changes the answer: prefill and decode in any split, rows that change places, and padding."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from builder.finding import Finding, Status

from . import LENGTH, Specimen

_SPLITS = ((1,) * LENGTH, (4, 1, 1, 1, 1, 1, 1), (4, 3, 3), (9, 1))
_PADS = 3
_SIDES = {"on the left": 0, "between tokens": 2, "on the right": LENGTH - _PADS}
"""How many tokens stand ahead of the pads."""
_PREFILLED = 5
"""Tokens of a prefill, pads among them: that with pads between tokens ends in them."""
_AGAIN = torch.tensor([2, 0, 0])
"""Which of three rows each becomes, as in beam search: one is lost, and one goes on twice."""
_STATE = "another component here, or one whose state holds all that later outputs read"


@torch.no_grad()
def prove(specimen: Specimen) -> Iterator[Finding]:
    """The largest difference over all splits, that which new places of rows make, and the one of padding."""
    if specimen.model.spec.causal:
        yield from _decoding(specimen)
    rule = "padding changes nothing that is said of a real token, wherever it stands"
    worst = max((_difference(*pair), side) for side, pair in _padded(specimen))
    fix = "a component that reads ctx.mask, and positions that count real tokens"
    yield _judge(specimen, worst[0], f"{_PADS} pads {worst[1]}", rule, fix)


def _decoding(specimen: Specimen) -> Iterator[Finding]:
    full = specimen.out(specimen.model(specimen.tokens, **specimen.beside()))  # (1, T, V)
    worst = max((_difference(_in_parts(specimen, split), full), split) for split in _SPLITS)
    rule = "prefill and decode in any split give the logits of the full pass"
    path = "model" if worst[0] <= specimen.tolerance else _first_apart(specimen, worst[1])
    yield _judge(specimen, worst[0], f"split {'+'.join(map(str, worst[1]))}", rule, _STATE, path)
    rule = "rows of a state that change places, or go on in a state of their own, are those that they have become"
    for own in (False, True):
        where = f"three rows become {_AGAIN.tolist()}{', in a state of their own' * own}"
        yield _judge(specimen, _reordered(specimen, own), where, rule, _STATE)
    rule = "tokens that are taken back, as those of a draft, leave nothing behind"
    yield _judge(specimen, _taken_back(specimen), "three tokens read and taken back", rule, _STATE)
    if specimen.model.spec.prefix:
        prefix = torch.arange(specimen.tokens.shape[1])[None] < _SPLITS[1][0]  # (1, T)
        full = specimen.out(specimen.model(specimen.tokens, prefix=prefix))
        rule = "a prefix that is prefilled as a whole, and decode behind it, give the logits of the full pass"
        difference = _difference(_in_parts(specimen, _SPLITS[1], prefix), full)
        yield _judge(specimen, difference, f"a prefix of {_SPLITS[1][0]} tokens", rule, _STATE)


def _first_apart(specimen: Specimen, split: tuple[int, ...]) -> str:
    """Where a split pass parts from the full one first: the slot of that layer, or what writes positions into it."""
    model, heard = specimen.model, list[Tensor]()
    stages = [model.embedding, *dict.fromkeys(model.layers)]
    hooks = [stage.register_forward_hook(lambda _, given, out: heard.append(out)) for stage in stages]
    try:
        _in_parts(specimen, (LENGTH,))
        full = [*heard]
        heard.clear()
        _in_parts(specimen, split)
    finally:
        for hook in hooks:
            hook.remove()
    names = ["position", *(layer.mixer.slot for layer in model.spec.layers)]
    told = zip(full, names, strict=False) if model.encoder is None else ()  # whose encoder is heard only once
    for place, (whole, name) in enumerate(told):
        if _difference(torch.cat(heard[place :: len(names)], dim=1), whole) > specimen.tolerance:
            return f"model.{name}"
    return "model"


def _reordered(specimen: Specimen, own: bool) -> float:
    """How far three rows that change places half-way are from passes over what they have become; `own`: in a new state,
    beside which the first one goes on."""
    model, half = specimen.model, LENGTH // 2
    rows = torch.cat([(specimen.tokens + row) % model.vocab_size for row in range(len(_AGAIN))])  # (B, T)
    beside = specimen.beside(len(rows))
    sources = {"source": (beside["source"] + torch.arange(len(rows))[:, None]) % model.vocab_size} if beside else {}
    state = model.new_state(len(rows), LENGTH)
    model(rows[:, :half], state=state, **sources)
    if own:
        first, state = state, state.picked(_AGAIN)
        model(rows[:, half:], state=first)
    else:
        state.reorder(_AGAIN)
    become = torch.cat((rows[_AGAIN, :half], rows[:, half:]), dim=1)  # (B, T)
    later = [specimen.out(model(become[:, at : at + 1], state=state)) for at in range(half, LENGTH)]
    full = specimen.out(model(become, **{name: value[_AGAIN] for name, value in sources.items()}))
    return _difference(torch.cat(later, dim=1), full[:, half:])


def _taken_back(specimen: Specimen) -> float:
    """How far decoding is from the full pass where other tokens were read in between, and taken back."""
    model, tokens, half = specimen.model, specimen.tokens, LENGTH // 2
    state = model.new_state(1, LENGTH)
    model(tokens[:, :half], state=state, **specimen.beside())
    mark = state.mark(3)
    model((tokens[:, half : half + 3] + 1) % model.vocab_size, state=state)
    state.rewind(mark)
    later = [specimen.out(model(tokens[:, at : at + 1], state=state)) for at in range(half, LENGTH)]
    full = specimen.out(model(tokens, **specimen.beside()))
    return _difference(torch.cat(later, dim=1), full[:, half:])


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
    place = torch.arange(LENGTH)
    for side, ahead in _SIDES.items():
        tokens = torch.cat((text[:, :ahead], pads, text[:, ahead:]), dim=1)
        real = (place < ahead) | (place >= ahead + _PADS)
        passed = model(tokens, attention_mask=real[None], **specimen.beside())
        yield side, (specimen.out(passed)[:, real], alone)
        if model.spec.causal and ahead < _PREFILLED:
            yield f"{side}, with a state", (_decoded(specimen, tokens, real[None])[:, real], alone)
    if specimen.source is not None:
        kept = specimen.source[:, _PADS:]
        real = torch.arange(specimen.source.shape[1])[None] < kept.shape[1]
        source = torch.cat((kept, pads), dim=1)
        padded = specimen.out(model(specimen.tokens, source=source, source_mask=real))
        yield "behind the source", (padded, specimen.out(model(specimen.tokens, source=kept)))


def _decoded(specimen: Specimen, tokens: Tensor, real: Tensor) -> Tensor:
    """What is said of tokens (1, T), of which pads are not real, by prefill and decode."""
    model, cut = specimen.model, _PREFILLED
    state = model.new_state(1, tokens.shape[1])
    prefill = model(tokens[:, :cut], attention_mask=real[:, :cut], state=state, **specimen.beside())
    decode = [model(tokens[:, i : i + 1], state=state) for i in range(cut, tokens.shape[1])]
    return torch.cat([specimen.out(output) for output in (prefill, *decode)], dim=1)  # (1, T, V)


def _difference(out: Tensor, full: Tensor) -> float:
    difference = ((out - full).abs().max() / full.abs().max()).item()
    return difference if math.isfinite(difference) else math.inf  # NaN is equal to nothing


def _judge(specimen: Specimen, difference: float, where: str, rule: str, fix: str, path: str = "model") -> Finding:
    found = f"relative difference {difference:.0e} ({where})"
    if difference > specimen.tolerance:
        return Finding(Status.FAIL, 3, path, found, rule, fix)
    return Finding(Status.PASS, 3, path, found, f"proven: {rule}")
