"""A ModelSpec in, a LanguageModel out: every component at its site, every parameter drawn once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from builder.component import Config, Site
from builder.components import init
from builder.errors import expect
from builder.layers import LayerSpec
from builder.spec import ModelSpec

from .embedding import Embedding
from .language_model import LanguageModel
from .stack import Stack
from .tower import Encoder


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
    expect(model_spec, ModelSpec, "build", "build(spec.model)")
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
    source, head = spec.source, spec.head.component
    return LanguageModel(
        spec=spec,
        **_tower(spec, vocab_size),
        head=head(spec.head, spec.site(0), vocab_size),
        encoder=None if source is None else Encoder(source, **_tower(source, vocab_size)),
    )


def _tower(spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
    """What a stack of layers is made of."""
    schemes = {scheme: _made(config, spec.scheme_site(scheme)) for scheme, config in spec.schemes.items()}
    norm: Any = spec.norm.component
    return {
        "embedding": Embedding(spec.embedding, vocab_size, spec.d_model),
        "positions": nn.ModuleDict(schemes),
        "layers": Stack(_blocks(spec)),
        "final_norm": norm(spec.norm, spec.d_model) if spec.ends_in_norm else None,
    }


def _blocks(spec: ModelSpec) -> list[nn.Module]:
    """The layers in order; those of an entry that is `shared` are one."""
    once: dict[str, nn.Module] = {}
    together: dict[Any, Any] = {}
    blocks = []
    for layer in spec.layers:
        kind = str(layer)
        block = once.get(kind) or _block(layer, spec, together)
        if kind in spec.shares:
            once[kind] = block
        blocks.append(block)
    return blocks


def _made(config: Config, site: Site) -> nn.Module:
    component: Any = config.component
    return component(config, site)


def _block(layer: LayerSpec, spec: ModelSpec, together: dict[Any, Any]) -> nn.Module:
    site = replace(spec.site(layer.index), together=together)
    parts = {part.kind: _made(part.config, site) for part in layer.parts}
    block: Any = spec.block.component
    return block(spec.block, site, parts)
