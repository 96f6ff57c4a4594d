"""The shape ledger of chapter 3.7: every main tensor of a pass, as the layers report it while an empty batch runs."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from builder.model.assemble import build
from builder.model.context import Aux, Shape
from builder.model.language_model import LanguageModel
from builder.spec import ModelSpec


@torch.no_grad()
def shapes(spec: ModelSpec, batch_size: int) -> tuple[Shape, ...]:
    """The tensors of a pass over `batch_size` sequences of train_length tokens, each kind of layer at its first place.

    The real model runs on a batch of no rows, its weights without storage: every shape is the true one, and no
    memory is taken, however large the model. Each row's first axis is then the batch that was asked for.
    """
    firsts = [alike[0].index for alike in spec.kinds.values()]
    model = _hollow(spec.model_copy(update={"n_layers": len(firsts), "pattern": tuple(spec.kinds)}))
    aux = Aux(shapes=[])
    nothing = torch.zeros(0, spec.train_length, dtype=torch.long)  # (0, T)
    model(nothing, positions=nothing, aux=aux)  # positions are given, so that no table is asked how far it reaches
    places = {index: first for index, first in enumerate(firsts)} | {None: None}
    return tuple(
        replace(line, layer=places[line.layer], sizes=(batch_size, *line.sizes[1:])) for line in aux.shapes or ()
    )


def _hollow(spec: ModelSpec) -> LanguageModel:
    """The model with every weight and buffer a single number, expanded to its shape."""
    model = build(spec, device="meta").eval()
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            single = torch.zeros((), dtype=weight.dtype).expand(weight.shape)
            setattr(module, name, nn.Parameter(single, requires_grad=False))
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, torch.zeros((), dtype=buffer.dtype).expand(buffer.shape))
    return model
