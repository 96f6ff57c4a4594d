"""Whether rows of a batch, each with padding or documents of its own, say what each says alone."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from builder.checklist.where import path_of
from builder.finding import Finding, Status

from . import LENGTH, Specimen
from .causality import vectors

_PLACE = torch.arange(LENGTH)
_PADDED = torch.stack([_PLACE >= 0, _PLACE >= 3, _PLACE < LENGTH - 2])  # (B, T)
_PACKED = torch.stack([1 + _PLACE.ge(end) for end in (LENGTH, 3, 6)])  # (B, T), the documents of each


@torch.no_grad()
def prove(specimen: Specimen) -> Iterator[Finding]:
    """Three rows at once against the same one by one: plain, padded on either side, and packed."""
    told = [("plain", {}), ("padded", {"attention_mask": _PADDED}), ("packed", {"segments": _PACKED})]
    worst = max((_apart(specimen, beside), what) for what, beside in told)
    found = f"three rows at once and one by one: relative difference {worst[0]:.0e} ({worst[1]})"
    if worst[0] <= specimen.tolerance:
        rule = "proven: a row says what it says alone, whatever stands in the others"
        yield Finding(Status.PASS, 2, "model", found, rule)
        return
    if specimen.rivals:
        rule = "tokens of all rows compete for the experts: what is said of one depends on the batch it is in"
        path = path_of(specimen.model.spec, specimen.rivals[0])
        yield Finding(Status.WARN, 2, path, found, rule, "model/router=topk, where a token chooses for itself")
        return
    rule = "what is said of a row doesn't depend on the others of its batch, or on their masks"
    yield Finding(Status.FAIL, 2, _mixing(specimen), found, rule, "another component, or one that keeps rows apart")


def _apart(specimen: Specimen, beside: dict[str, Tensor]) -> float:
    """The largest difference between rows at once and one by one, at real tokens, as a part of the largest output."""
    model = specimen.model
    tokens = torch.cat([(specimen.tokens + 3 * row) % model.vocab_size for row in range(3)])  # (B, T)
    given = specimen.beside(3) | beside
    real = beside.get("attention_mask", torch.ones_like(tokens, dtype=torch.bool))
    whole = specimen.out(model(tokens, **given))
    rows = [{name: value[row : row + 1] for name, value in given.items()} for row in range(3)]
    alone = torch.cat([specimen.out(model(tokens[row : row + 1], **told)) for row, told in enumerate(rows)])
    difference = ((whole - alone)[real].abs().max() / alone[real].abs().max()).nan_to_num(nan=torch.inf)
    return difference.item()


def _mixing(specimen: Specimen) -> str:
    """The path of the first part of positions alone that mixes rows, by itself; else that of the model."""
    model, x = specimen.model, vectors(specimen, specimen.model)[:3]
    for name, part in model.named_modules():
        if name.endswith("norm") and name.count(".") < 3:
            made = part(x)
            if not torch.allclose(made[:1], part(x[:1])):
                return path_of(model.spec, name)
    return "model"
