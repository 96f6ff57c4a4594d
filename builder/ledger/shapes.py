"""The shape ledger of chapter 3.7: every main tensor of a pass, as the layers report it on the meta device."""

from __future__ import annotations

import torch

from builder.model.assemble import build
from builder.model.context import Aux, Shape
from builder.spec import ModelSpec


@torch.no_grad()
def shapes(spec: ModelSpec, batch_size: int) -> tuple[Shape, ...]:
    """The tensors of a pass over `batch_size` sequences of train_length tokens, each distinct layer once."""
    model = build(spec.model_copy(update={"n_layers": min(spec.n_layers, len(spec.pattern))}), device="meta").eval()
    aux = Aux(shapes=[])
    model(torch.zeros(batch_size, spec.train_length, dtype=torch.long, device="meta"), aux=aux)
    return tuple(aux.shapes or ())
