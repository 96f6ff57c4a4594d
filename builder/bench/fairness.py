"""What must hold before two models are measured against each other: the same size, the same function, no dropout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from builder.errors import ArchlabError, ConfigError, Problem
from builder.spec import RunSpec

from .contender import Contender
from .work import tokens

TOLERANCE = 1e-3
"""How far two logits may be apart, relative to the largest: float32 sums in another order, and no more."""


def refuse_dropout(spec: RunSpec) -> None:
    """Raises ConfigError for every dropout that is on: two models don't draw alike, nor at the same places."""
    rule = "beside a peer both run without dropout, so that they compute the same"
    found = list(_dropouts(spec.to_dict()["model"], "model"))
    if found:
        raise ConfigError([Problem(path, str(value), rule, f"{path}=0.0") for path, value in found])


def refuse_unequal(ours: Contender, theirs: Contender, spec: RunSpec) -> None:
    """Raises ArchlabError unless both have as many parameters and give the same logits to the same tokens."""
    if ours.parameters != theirs.parameters:
        raise ArchlabError(
            f"peers=true: {ours.name} has {ours.parameters:,} parameters and {theirs.name} {theirs.parameters:,}; "
            "models of different sizes are not measured against each other"
        )
    apart = distance(ours, theirs, spec)
    if not apart <= TOLERANCE:
        raise ArchlabError(
            f"peers=true: with the same weights, {ours.name} and {theirs.name} give logits that are {apart:.2g} of the "
            f"largest apart, more than {TOLERANCE:g}; they are not the same model"
        )


@torch.inference_mode()
def distance(ours: Contender, theirs: Contender, spec: RunSpec) -> float:
    """The largest difference of their logits, as a part of the largest logit; prefill and one decode step."""
    length = max(1, min(15, spec.model.deploy_length - 1))
    prompt = tokens(spec, 2, length, next(ours.module.parameters()).device)
    rows = []
    for contender in (ours, theirs):
        contender.module.eval()
        first, state = contender.prefill(prompt, length + 1)
        second, _ = contender.decode(prompt[:, :1], state)
        rows.append(torch.cat((first, second), 1))  # (2, 2, V)
    one, other = rows
    return ((one - other).abs().max() / one.abs().max()).item()


def _dropouts(node: Any, path: str) -> Iterator[tuple[str, float]]:
    for key, value in node.items() if isinstance(node, Mapping) else ():
        if key == "dropout" and value:
            yield f"{path}.{key}", value
        yield from _dropouts(value, f"{path}.{key}")
