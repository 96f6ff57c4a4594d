"""What a model writes for each source of the validation rows, beside what was wanted."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from builder.data import Corpus
from builder.data.tokenizer import Tokenizer
from builder.generation import generate
from builder.model.language_model import LanguageModel


@dataclass(frozen=True)
class Answer:
    """One row, as text: what was read, what was wanted, and what was written."""

    source: str
    wanted: str
    written: str


def answers(
    model: LanguageModel,
    corpus: Corpus,
    picks: Tensor,
    size: int,
    num_beams: int,
    tell: Callable[[str, int, int], None],
) -> list[Answer]:
    """The answers to the rows `picks`, `size` at a time: each as long as model.deploy_length lets it become."""
    words, device = corpus.tokenizer, model.embedding.weight.device
    found: list[Answer] = []
    count = math.ceil(len(picks) / size)
    for number, some in enumerate(picks.split(size)):
        batch = {name: value.to(device) for name, value in corpus.val.rows(some).items()}
        source, real = batch["source"], batch.get("source_mask")
        made = generate(
            model,
            batch["tokens"][:, :1],
            source=source,
            source_mask=real,
            max_new_tokens=model.deploy_length - 1,
            eos=words.eos,
            pad=words.pad,
            num_beams=num_beams,
        )
        wanted = texts(words, batch["tokens"][:, 1:], batch.get("attention_mask", batch["tokens"] > -1)[:, 1:])
        written = [
            words.decode(row[:length]) for row, length in zip(made.tokens.tolist(), made.lengths.tolist(), strict=True)
        ]
        sources = texts(words, source, source > -1 if real is None else real)
        found += [Answer(*row) for row in zip(sources, wanted, written, strict=True)]
        tell("answers", number + 1, count)
    return found


def texts(tokenizer: Tokenizer, rows: Tensor, real: Tensor) -> list[str]:
    """The texts of rows (B, T) of ids, where `real` (B, T) says so."""
    return [tokenizer.decode(row[mask].tolist()) for row, mask in zip(rows, real, strict=True)]
