"""Proofs by running: a small copy of the model, its parameters drawn wide, is perturbed and compared.

A probe is `prove(specimen) -> findings`; each has a test that plants the fault and sees it fail.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from builder.architecture import EncoderSpec
from builder.components.router import Router
from builder.model.assemble import assemble
from builder.model.language_model import LanguageModel, Output
from builder.spec import ModelSpec

from .range import InRange

LENGTH = 10
"""Tokens that a probe reads."""
_VOCABULARY = 40
_WIDE = 0.2  # most faults pass unseen at the small or zero values that parameters start from


@dataclass(frozen=True)
class Specimen:
    """A small copy in float64, so that what differs by more than `tolerance` of its size differs in truth."""

    model: LanguageModel
    tokens: torch.Tensor
    source: torch.Tensor | None = None
    tolerance: float = 1e-6

    def beside(self, rows: int = 1) -> dict[str, torch.Tensor]:
        """What the model is given beside `rows` rows of tokens: a source, where it reads one."""
        return {} if self.source is None else {"source": self.source.expand(rows, -1)}

    @property
    def rivals(self) -> list[str]:
        """The names of the routers for whose experts the rows of a pass compete."""
        return [name for name, part in self.model.named_modules() if isinstance(part, Router) and part.rows_compete]

    @cached_property
    @torch.no_grad()
    def overflows(self) -> bool:
        """Whether it writes numbers of float64 that float32 hasn't, and casts them to that."""
        with InRange() as within, suppress(Exception):  # what it raises, its probes tell
            self.model(self.tokens, **self.beside())
        return within.met

    def out(self, output: Output) -> torch.Tensor:
        """What an output says at each position, (B, T, ...): logits, or hidden states where the head gives none."""
        per_position = self.model.head.gives in ("tokens", "token_classes")
        return output.logits if per_position else output.hidden


def shrink(spec: ModelSpec, specials: int = 0) -> ModelSpec:
    """The same options on a small model: each kind of layer once or twice, narrow, with few tokens, and rows for so
    many special ones."""
    site = spec.site(0)
    shared = {slot: getattr(spec, slot) for slot in ("norm", "block", "position", "init", "head")}
    small: dict[str, Any] = {slot: config.shrink(site) for slot, config in (spec.slots | shared).items()}
    if (source := spec.source) is not None:
        small["encoder"] = EncoderSpec(n_layers=_layers(source), pattern=tuple(source.kinds))
    dimensions = {
        "d_model": 32,
        "n_layers": _layers(spec),
        "pattern": tuple(spec.kinds),
        "vocab_size": _VOCABULARY + specials,
        "train_length": max(LENGTH, min(spec.train_length, 2 * LENGTH)),
        "deploy_length": max(LENGTH, min(spec.train_length, 2 * LENGTH)),
    }
    return spec.model_copy(update=small | dimensions)


def _layers(spec: ModelSpec) -> int:
    """Each kind once, at least two layers, and of a kind that shares its weights two."""
    return 2 * len(spec.kinds) if spec.shared else max(2, len(spec.kinds))


def specimen(spec: ModelSpec, specials: int = 0) -> Specimen:
    """A small copy of the model, every parameter from N(0, 0.2^2), and tokens to read: the same at each call."""
    generator = torch.Generator().manual_seed(0)
    model = (
        assemble(shrink(spec, specials)).to(torch.float64).eval()
    )  # drawn here, so that a missing role is told and not met
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, _WIDE, generator=generator)
    tokens, source = torch.randint(0, model.vocab_size, (2, 1, LENGTH), generator=generator)  # (1, T) each
    return Specimen(model, tokens, None if spec.encoder is None else source)
