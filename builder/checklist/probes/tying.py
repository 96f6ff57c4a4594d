"""Whether tied weights are one tensor, and untied ones two."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor

from builder.finding import Finding, Status

from . import Specimen


def prove(specimen: Specimen) -> Iterator[Finding]:
    """Storage of embedding and head, as built and after a change of dtype."""
    model, tied = specimen.model, specimen.model.spec.tie_embeddings
    shared = _one(model.embedding.weight, model.head.weight)
    cast = copy.deepcopy(model).to(torch.float32)  # a copy, so that no weight of the specimen is rounded
    shared_after = _one(cast.embedding.weight, cast.head.weight)
    found = f"tie_embeddings {str(tied).lower()}: embedding and head are {'one tensor' if shared else 'two tensors'}"
    if shared != tied or shared_after != tied:
        rule = "tied weights share storage, also after a cast; untied ones don't (chapter 3.7)"
        yield Finding(Status.FAIL, 4, "model.tie_embeddings", found, rule, "the head's weight must be the embedding's")
    else:
        yield Finding(Status.PASS, 4, "model.tie_embeddings", found, "proven on the built model, also after a cast")


def _one(a: Tensor, b: Tensor) -> bool:
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape
