"""From words with a tag each to a corpus whose tokens have labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import ConfigError, Problem
from .corpus import Corpus, opening
from .digest import digest
from .ragged import Ragged
from .records import fitted, refuse_longer, split_records
from .samples import Batch, Shape
from .samples.padded import Padded
from .texts import refuse_padding
from .tokenizer import Tokenizer

NONE = -1
"""The label of a token that has none."""

Row = tuple[Sequence[str], Sequence[str]]


class Tagged(Padded):
    """`tokens` of a text a row, and `labels`: the number of each token's tag, or `NONE`."""

    def __init__(self, texts: Ragged, tags: Ragged, tokenizer: Tokenizer):
        super().__init__({"tokens": texts}, tokenizer)
        self.tags = tags

    def rows(self, picks: Tensor, mine: slice = slice(None)) -> Batch:
        batch = super().rows(picks, mine)
        labels, real = self.tags.padded(picks[mine], batch["tokens"].shape[1], 0)  # (B, T) each
        return batch | {"labels": labels.masked_fill(~real, NONE)}

    def targets(self, batch: Batch) -> Tensor:
        return batch["labels"]

    def at(self, length: int) -> Tagged:
        return self


def tagged_corpus(rows: Sequence[Row], config: Any, tokenizer_config: Any, shape: Shape, cache: Path) -> Corpus:
    """Rows of words and their tags: a word's first token has its tag, and its other tokens none (Devlin et al. 2019).

    Words stand in a text with a space between them. Equal texts are held out together. Raises ConfigError where a row
    has not one tag for each word, where all tags are one, or as records do.
    """
    for number, (words, tags) in enumerate(rows, 1):
        if len(words) != len(tags):
            found = f"row {number}: {len(words)} words and {len(tags)} tags: {' '.join(words)[:40]!r}"
            raise ConfigError([Problem("data.path", found, "a tag for each word", "mend the row")])
    labels = tuple(sorted({tag for _, tags in rows for tag in tags}))
    if len(labels) < 2:
        found = f"{len(rows)} rows with {len(labels)} tags"
        raise ConfigError([Problem("data.path", found, "at least 2 tags to tell apart", "rows with more tags")])
    records = [(" ".join(words), json.dumps([words, tags])) for words, tags in rows]
    halves = [[json.loads(said) for _, said in half] for half in split_records(records, config.val_fraction)]
    texts = [" ".join(words) for words, _ in halves[0]]
    tokenizer: Tokenizer = tokenizer_config.component.prepare(tokenizer_config, texts, cache)
    numbers = {label: number for number, label in enumerate(labels)}
    read = [[_encoded(words, tags, numbers, tokenizer) for words, tags in half] for half in halves]
    refuse_padding(tokenizer, *(ids for side in read for ids, _ in side))
    if config.overlong == "refuse":
        lengths = torch.tensor([len(ids) for side in read for ids, _ in side])
        refuse_longer(lengths, [" ".join(words) for half in halves for words, _ in half], shape.length)
    drop = config.overlong == "drop"
    sides = [Tagged(*fitted(*zip(*side, strict=True), drop=drop, length=shape.length), tokenizer) for side in read]
    mark = digest([tokenizer.fingerprint, str(len(halves[0])), *(json.dumps(row) for half in halves for row in half)])
    return Corpus(tokenizer, sides[0], sides[1], mark, config.kind, None, labels, opening=opening(texts))


def _encoded(
    words: Sequence[str], tags: Sequence[str], numbers: dict[str, int], tokenizer: Tokenizer
) -> tuple[Tensor, Tensor]:
    """The tokens of a text, and the label of each."""
    ids: list[int] = []
    labels: list[int] = []
    for place, (word, tag) in enumerate(zip(words, tags, strict=True)):
        more = tokenizer.encode(f" {word}" if place else word)
        # the space before a word may be a token of its own: then the tag is that of what follows it
        first = next((at for at, id in enumerate(more) if tokenizer.decode([id]).strip()), 0)
        ids += more
        labels += [numbers[tag] if at == first else NONE for at in range(len(more))]
    ids, before = tokenizer.begun(ids), [NONE] * (tokenizer.bos is not None)
    return torch.tensor([*ids, tokenizer.eos]), torch.tensor([*before, *labels, NONE])
