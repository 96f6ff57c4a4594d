"""A ModelSpec in, a LanguageModel out: every component at its site, every parameter drawn once."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from builder.component import Config, Site
from builder.components import init
from builder.layers import LayerSpec
from builder.spec import ModelSpec

from .embedding import Embedding
from .head import Head
from .language_model import LanguageModel
from .stack import Stack


def build(
    model_spec: ModelSpec,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    seed: int | None = None,
) -> LanguageModel:
    """The model that a spec describes, its parameters drawn from `seed` (None: torch's global generator).

    On device="meta" nothing is allocated or drawn. With a seed, the global generators are left as they were.
    Raises ValueError when `vocab_size` is still None, or a parameter has no role.
    """
    place = torch.device(device)
    chips = [place] if place.type == "cuda" else []
    with torch.random.fork_rng(chips, enabled=seed is not None), place:  # torch's own modules draw when they are made
        model = assemble(model_spec)
    if place.type != "meta":
        generator = None if seed is None else torch.Generator(device).manual_seed(seed)
        init.chosen(model_spec).apply(model, generator)
    return model if dtype is None else model.to(dtype)


def assemble(spec: ModelSpec) -> LanguageModel:
    """The model that a spec describes, its parameters not yet drawn. Raises ValueError without a `vocab_size`."""
    vocab_size = spec.vocab_size
    if vocab_size is None:
        raise ValueError("model.vocab_size is null: build needs a number; load takes the tokenizer's size")
    positions = nn.ModuleDict(
        {scheme: _scheme(config, spec.scheme_site(scheme)) for scheme, config in spec.schemes.items()}
    )
    norm: Any = spec.norm.component
    return LanguageModel(
        spec=spec,
        embedding=Embedding(spec.embedding, vocab_size, spec.d_model),
        positions=positions,
        slots=[spec.scheme_of(layer) for layer in spec.layers],
        layers=Stack([_block(layer, spec) for layer in spec.layers]),
        final_norm=norm(spec.norm, spec.d_model) if spec.ends_in_norm else None,
        head=Head(spec.head, vocab_size, spec.d_model),
    )


def _scheme(config: Config, site: Site) -> nn.Module:
    scheme: Any = config.component
    return scheme(config, site)


def _block(layer: LayerSpec, spec: ModelSpec) -> nn.Module:
    parts = {part.kind: _part(part.config, spec, layer.index) for part in layer.parts}
    block: Any = spec.block.component
    return block(spec.block, spec.site(layer.index), parts)


def _part(config: Config, spec: ModelSpec, layer: int) -> nn.Module:
    part: Any = config.component
    return part(config, spec.site(layer))
