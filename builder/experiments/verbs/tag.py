"""A model with a token classifier says which class each token of the prompt is of."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from rich.console import Console

from builder.data.tokenizer import Tokenizer
from builder.model.language_model import LanguageModel
from builder.sections import SampleSpec

from .asked import fits, read
from .classify import name


def refuse(tokenizer: Tokenizer, spec: SampleSpec, longest: int) -> None:
    """Raises ArchlabError for a text that is too long, or none."""
    fits(tokenizer.encode(spec.prompt), longest)


@torch.no_grad()
def answer(
    model: LanguageModel, tokenizer: Tokenizer, spec: SampleSpec, console: Console, labels: Sequence[str]
) -> str:
    """A line for each token: its text, its likeliest class, and how likely that is."""
    ids = tokenizer.encode(spec.prompt)
    best = read(model, ids)[0].float().softmax(-1).max(-1)  # (T,)
    lines = [
        f"{tokenizer.decode([id])!r:<16}{share:6.1%}  {name(labels, int(number))}"
        for id, share, number in zip(ids, best.values, best.indices, strict=True)
    ]
    for line in lines:
        console.print(line, highlight=False, markup=False)
    return "\n".join(lines) + "\n"
