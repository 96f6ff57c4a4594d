"""Proofs by running: a small copy of the model, its parameters drawn wide, is perturbed and compared.

A probe is `prove(specimen) -> findings`; each has a test that plants the fault and sees it fail.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from builder.model.assemble import assemble
from builder.model.language_model import LanguageModel
from builder.spec import ModelSpec

LENGTH = 10
"""Tokens that a probe reads."""
_WIDE = 0.2  # most faults pass unseen at the small or zero values that parameters start from


@dataclass(frozen=True)
class Specimen:
    """A small copy in float64, so that what differs by more than `tolerance` of its size differs in truth."""

    model: LanguageModel
    tokens: torch.Tensor
    tolerance: float = 1e-6


def shrink(spec: ModelSpec) -> ModelSpec:
    """The same options on a small model: each kind of layer once or twice, narrow, with few tokens."""
    site = spec.site(0)
    shared = {slot: getattr(spec, slot) for slot in ("norm", "block", "position", "init")}
    small = {slot: config.shrink(site) for slot, config in (spec.slots | shared).items()}
    dimensions = {
        "d_model": 32,
        "n_layers": max(2, len(spec.kinds)),
        "pattern": tuple(spec.kinds),
        "vocab_size": 40,
        "train_length": max(LENGTH, min(spec.train_length, 2 * LENGTH)),
        "deploy_length": max(LENGTH, min(spec.train_length, 2 * LENGTH)),
    }
    return spec.model_copy(update=small | dimensions)


def specimen(spec: ModelSpec) -> Specimen:
    """A small copy of the model, every parameter from N(0, 0.2^2), and tokens to read: the same at each call."""
    generator = torch.Generator().manual_seed(0)
    model = assemble(shrink(spec)).to(torch.float64).eval()  # drawn here, so that a missing role is told and not met
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, _WIDE, generator=generator)
    return Specimen(model, torch.randint(0, model.vocab_size, (1, LENGTH), generator=generator))
