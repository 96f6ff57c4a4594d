"""A model with a classifier says which class the prompt is of."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from rich.console import Console

from builder.data.tokenizer import Tokenizer
from builder.model.language_model import LanguageModel
from builder.sections import SampleSpec

from .asked import fits, read

_LIKELIEST = 5


def refuse(tokenizer: Tokenizer, spec: SampleSpec, longest: int) -> None:
    """Raises ArchlabError for a text that is too long, or none."""
    fits(tokenizer.whole(spec.prompt), longest)


@torch.no_grad()
def answer(
    model: LanguageModel, tokenizer: Tokenizer, spec: SampleSpec, console: Console, labels: Sequence[str]
) -> str:
    """The likeliest classes of the prompt, and how likely they are."""
    shares = read(model, tokenizer.whole(spec.prompt))[0].float().softmax(-1)  # (C,)
    best = shares.topk(min(_LIKELIEST, len(shares)))
    lines = [
        f"{share:6.1%}  {name(labels, int(number))}" for share, number in zip(best.values, best.indices, strict=True)
    ]
    for line in lines:
        console.print(line, highlight=False, markup=False)
    return "\n".join(lines) + "\n"


def name(labels: Sequence[str], number: int) -> str:
    """How a class is called."""
    return labels[number] if number < len(labels) else f"class {number}"
