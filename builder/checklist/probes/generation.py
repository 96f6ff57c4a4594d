"""Whether a state changes the answer: prefill and decode in any split, and left padding, against one full pass."""

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
    full = specimen.model(specimen.tokens).logits  # (1, T, V)
    worst = max((_difference(_in_parts(specimen, split), full), split) for split in _SPLITS)
    rule = "prefill and decode in any split give the logits of the full pass"
    yield _judge(specimen, worst[0], f"split {'+'.join(map(str, worst[1]))}", rule)
    rule = "left padding changes no logit of a real token, with and without a state"
    yield _judge(specimen, max(_difference(out, full) for out in _padded(specimen)), f"{_PADS} pads on the left", rule)


def _in_parts(specimen: Specimen, split: tuple[int, ...]) -> Tensor:
    state = specimen.model.new_state(1, specimen.tokens.shape[1])
    parts = specimen.tokens.split(split, dim=1)
    return torch.cat([specimen.model(part, state=state).logits for part in parts], dim=1)  # (1, T, V)


def _padded(specimen: Specimen) -> Iterator[Tensor]:
    """The logits of the real tokens behind pads: in one pass, then by prefill and decode."""
    real_tokens = specimen.tokens[:, _PADS:]
    tokens = torch.cat((torch.zeros_like(real_tokens[:, :_PADS]), real_tokens), dim=1)  # (1, T)
    real = torch.arange(tokens.shape[1])[None] >= _PADS  # (1, T)
    short = specimen.model(real_tokens).logits
    full = specimen.model(specimen.tokens).logits
    expected = full.clone()
    expected[:, _PADS:] = short
    passed = specimen.model(tokens, attention_mask=real).logits
    state, cut = specimen.model.new_state(1, tokens.shape[1]), _PADS + 2
    prefill = specimen.model(tokens[:, :cut], attention_mask=real[:, :cut], state=state).logits
    decode = [specimen.model(tokens[:, i : i + 1], state=state).logits for i in range(cut, tokens.shape[1])]
    for logits in (passed, torch.cat((prefill, *decode), dim=1)):
        yield full + (logits - expected) * real[..., None]  # compared where real tokens stand


def _difference(logits: Tensor, full: Tensor) -> float:
    difference = ((logits - full).abs().max() / full.abs().max()).item()
    return difference if math.isfinite(difference) else math.inf  # NaN is equal to nothing


def _judge(specimen: Specimen, difference: float, where: str, rule: str) -> Finding:
    found = f"relative difference {difference:.0e} ({where})"
    if difference > specimen.tolerance:
        fix = "the state, or positions that don't count real tokens"
        return Finding(Status.FAIL, 3, "model", found, rule, f"look at {fix}")
    return Finding(Status.PASS, 3, "model", found, f"proven: {rule}")
