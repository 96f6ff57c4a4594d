"""The shape ledger of chapter 3.7: every main tensor of a pass, as the layers report it while an empty batch runs."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from builder.model.context import Aux, Shape
from builder.model.language_model import LanguageModel
from builder.spec import ModelSpec

from .states import once


@torch.no_grad()
def shapes(spec: ModelSpec, batch_size: int) -> tuple[Shape, ...]:
    """The tensors of a pass over `batch_size` sequences of train_length tokens, each kind of layer at its first place.

    The real model runs on a batch of no rows, its weights without storage: every shape is the true one, and no
    memory is taken, however large the model. Each row's first axis is then the batch that was asked for.
    """
    firsts = {name: [alike[0].index for alike in tower.kinds.values()] for name, tower in spec.towers.items()}
    model = _hollow(once(spec))
    aux = Aux(shapes=[])
    nothing = torch.zeros(0, spec.train_length, dtype=torch.long)  # (0, T)
    beside = {} if spec.source is None else {"source": nothing}
    model(nothing, positions=nothing, **beside, aux=aux)  # positions are given: no table is asked how far it reaches
    return tuple(
        replace(
            line,
            layer=None if line.layer is None else firsts[line.tower][line.layer],
            sizes=(batch_size, *line.sizes[1:]),
        )
        for line in aux.shapes or ()
    )


def _hollow(model: LanguageModel) -> LanguageModel:
    """A model with every weight and buffer a single number, expanded to its shape."""
    model.eval()
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            single = torch.zeros((), dtype=weight.dtype).expand(weight.shape)
            setattr(module, name, nn.Parameter(single, requires_grad=False))
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, torch.zeros((), dtype=buffer.dtype).expand(buffer.shape))
    return model
