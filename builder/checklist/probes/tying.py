"""Whether tied weights are one tensor, and untied ones two."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from builder.finding import Finding, Status
from builder.model.language_model import LanguageModel

from . import Specimen


def prove(specimen: Specimen) -> Iterator[Finding]:
    """Storage of the table, the head and the encoder's table, as built and after a change of dtype."""
    model, tied = specimen.model, specimen.model.spec.tie_embeddings
    cast = copy.deepcopy(model).to(torch.float32)  # a copy, so that no weight of the specimen is rounded
    if model.encoder is not None:
        yield _one_table(model, cast)
    if model.head.gives != "tokens":
        rule = "it has no rows for the vocabulary"
        yield Finding(Status.PASS, 4, "model.tie_embeddings", f"false, with the head {model.spec.head.name}", rule)
        return
    shared = _one(model.embedding.weight, model.head.weight)
    shared_after = _one(cast.embedding.weight, cast.head.weight)
    found = f"tie_embeddings {str(tied).lower()}: embedding and head are {'one tensor' if shared else 'two tensors'}"
    if tied and not _felt(model):
        rule = "the head's logits move with the table, and what they owe reaches it: here they come from a copy"
        yield Finding(Status.FAIL, 4, "model.head", found, rule, "another head, or one that multiplies by its weight")
    elif shared != tied or shared_after != tied:
        rule = "tied weights share storage, also after a cast; untied ones don't (chapter 3.7)"
        yield Finding(Status.FAIL, 4, "model.tie_embeddings", found, rule, "the head's weight must be the embedding's")
    else:
        yield Finding(Status.PASS, 4, "model.tie_embeddings", found, "proven on the built model, also after a cast")


def after(model: LanguageModel) -> Iterator[Finding]:
    """Whether what is tied still is, and what isn't has parted, after a step of the optimizer."""
    if model.head.gives != "tokens":
        return
    table, rows = model.embedding.weight, model.head.get_parameter("weight")
    tied, alike = model.spec.tie_embeddings, torch.equal(table, rows)
    found = f"after a step: embedding and head are {'alike' if alike else 'apart'}"
    if alike == tied and _one(table, rows) == tied:
        yield Finding(Status.PASS, 4, "model.tie_embeddings", found, "proven with the run's own optimizer")
    else:
        rule = f"tie_embeddings is {str(tied).lower()}, and a step of the optimizer changes nothing about that"
        fix = f"model.tie_embeddings={str(not tied).lower()}, or another optimizer"
        yield Finding(Status.FAIL, 4, "model.tie_embeddings", found, rule, fix)


def _felt(model: LanguageModel) -> bool:
    """Whether the head alone has a gradient at the table."""
    table = model.embedding.weight
    hidden = torch.ones(1, 2, model.spec.d_model, dtype=table.dtype)
    with torch.enable_grad():
        scores = model.head(hidden)
        (gradient,) = torch.autograd.grad(scores.sum(), table, allow_unused=True) if scores.requires_grad else (None,)
    return gradient is not None and bool(gradient.any())


def _one_table(*models: LanguageModel) -> Finding:
    held = all(_one(m.embedding.weight, m.encoder.embedding.weight) for m in models if m.encoder is not None)
    rule = "source and target are written in one vocabulary, and read one table"
    found = f"the tables of encoder and decoder are {'one tensor' if held else 'two tensors'}"
    return Finding(Status.PASS if held else Status.FAIL, 4, "model.encoder", found, rule)


def _one(a: Tensor, b: Any) -> bool:
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape
