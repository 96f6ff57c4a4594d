"""One text read by a model that doesn't generate."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from builder.errors import ArchlabError
from builder.model.language_model import LanguageModel


def fits(ids: Sequence[int], longest: int) -> None:
    """Raises ArchlabError for no tokens at all, or more than are read."""
    if not 0 < len(ids) <= longest:
        fix = "write a text" if not ids else f"a text of at most {longest} tokens, or a longer model.deploy_length"
        raise ArchlabError(f"prompt: found {len(ids)} tokens; between 1 and {longest} are read: {fix}")


def read(model: LanguageModel, ids: Sequence[int]) -> Tensor:
    """What the head gives for a text of these ids, (1, ...); raises ArchlabError where `fits` does."""
    fits(ids, model.deploy_length)
    tokens = torch.tensor([list(ids)], device=model.embedding.weight.device)
    model.eval()
    return model(tokens).logits
