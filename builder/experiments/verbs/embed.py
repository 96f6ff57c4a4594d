"""A model with a sentence head makes a vector of each line of the prompt."""

from __future__ import annotations

import json
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor

from builder.data.tokenizer import Tokenizer
from builder.model.language_model import LanguageModel
from builder.sections import SampleSpec

from .asked import fits, read


def refuse(tokenizer: Tokenizer, spec: SampleSpec, longest: int) -> None:
    """Raises ArchlabError for a line that is too long."""
    for text in _texts(spec.prompt):
        fits(tokenizer.whole(text), longest)


def _texts(prompt: str) -> list[str]:
    return [line for line in prompt.splitlines() if line.strip()] or [prompt]


@torch.no_grad()
def answer(
    model: LanguageModel, tokenizer: Tokenizer, spec: SampleSpec, console: Console, labels: Sequence[str]
) -> str:
    """The vector of a single line, as JSON; of several lines, the cosine between every two."""
    texts = _texts(spec.prompt)
    vectors = torch.cat([read(model, tokenizer.whole(text)) for text in texts]).float()  # (N, E)
    lines = [json.dumps([round(float(x), 6) for x in vectors[0]])] if len(texts) == 1 else _cosines(vectors, texts)
    for line in lines:
        console.out(line, highlight=False)
    return "\n".join(lines) + "\n"


def _cosines(vectors: Tensor, texts: Sequence[str]) -> list[str]:
    unit = F.normalize(vectors, dim=-1)
    return [
        f"{' '.join(f'{value:6.3f}' for value in row)}  {text}"
        for row, text in zip((unit @ unit.T).tolist(), texts, strict=True)
    ]
