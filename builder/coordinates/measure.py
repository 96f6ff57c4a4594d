"""Every copy on its first steps, from several seeds, on the same tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from builder.data.corpus import Corpus
from builder.spec import RunSpec

from .result import Coordinates
from .trace import trace
from .widths import at_widths

STEPS, SEEDS = 4, 3
"""Optimizer steps that a copy takes, and copies of each width."""
_ROWS, _LENGTH = 8, 64  # of the batch: enough for a mean over its numbers to be steady

Tell = Callable[[str], object]
"""Hears, after each copy, of which width it was."""


def measure(
    spec: RunSpec,
    corpus: Corpus,
    widths: Sequence[int],
    *,
    steps: int = STEPS,
    seeds: int = SEEDS,
    tell: Tell = lambda _: None,
) -> Coordinates:
    """The model of `spec` at every width, on the first tokens of `corpus`; raises ConfigError where it has no copy."""
    copies, tokens = at_widths(spec.model, widths), _tokens(spec, corpus)
    traces = []
    for width, copy in zip(widths, copies, strict=True):
        for seed in range(spec.seed, spec.seed + seeds):
            traces.append(trace(spec, copy, seed, tokens, steps))
            tell(f"d_model {width}")

    def gathered(which: int) -> dict:
        shape = (len(widths), seeds, steps + 1)
        return {key: torch.stack([one[key][which] for one in traces]).view(shape) for key in traces[0]}  # (W, N, S + 1)

    return Coordinates(tuple(widths), gathered(0), gathered(1))


def count(widths: Sequence[int]) -> int:
    """How many copies are trained, of each of which `tell` hears."""
    return len(widths) * SEEDS


def _tokens(spec: RunSpec, corpus: Corpus) -> Tensor:
    """The first windows of the training text, (B, T + 1), where the run trains."""
    length = min(spec.model.train_length, _LENGTH) + 1
    found = corpus.train.first(_ROWS * length)
    rows = len(found) // length
    ids = found[: rows * length].clamp_max((spec.model.vocab_size or 1) - 1)  # question 6 tells of others
    gpu = torch.cuda.is_available() and spec.trainer.get("accelerator") != "cpu"
    return ids.view(rows, length).to("cuda" if gpu else "cpu")
