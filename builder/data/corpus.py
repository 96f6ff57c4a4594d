"""From two configs to two rows of tokens: source, split, tokenizer, and the refusals that save a run from starting."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from ..errors import ConfigError, Problem
from .digest import digest
from .source import Source
from .split import split
from .tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class Corpus:
    """The tokens of a run: `train` (N,) and `val` (M,), int64, every document followed by the tokenizer's `eos`.

    `val_bytes_per_token`: UTF-8 bytes of the validation text per validation token (an `eos` is a token of 0 bytes), so
    nats per token / ln 2 / val_bytes_per_token = bits per byte. Equal `fingerprint`: equal text, split and tokenizer.
    """

    tokenizer: Tokenizer
    train: torch.Tensor
    val: torch.Tensor
    val_bytes_per_token: float
    fingerprint: str

    @property
    def largest_id(self) -> int:
        """The largest id in either split."""
        return int(max(self.train.max(), self.val.max()))


def prepare(source_config: Any, tokenizer_config: Any, *, train_length: int, cache: Path) -> Corpus:
    """Reads, splits and tokenizes; a tokenizer that trains sees the training text only.

    Raises ConfigError when the source has no text, a split has fewer than 2 tokens, the training split has fewer than
    `train_length` + 1, or the padding id stands in the text.
    """
    source = cast(type[Source], source_config.component)(source_config)
    train_texts, val_texts = split(source.documents(), source_config.val_fraction, source_config.split)
    tokenizer = cast(type[Tokenizer], tokenizer_config.component).prepare(tokenizer_config, train_texts, cache)
    train, val = tokenizer.encode_corpus(train_texts), tokenizer.encode_corpus(val_texts)
    _refuse_short(train, val, train_length)
    _refuse_padding(tokenizer, train, val)
    size = sum(len(text.encode()) for text in val_texts)
    mark = digest([tokenizer.fingerprint, str(len(train_texts)), *train_texts, *val_texts])
    return Corpus(tokenizer, train, val, size / len(val), mark)


def _refuse_short(train: torch.Tensor, val: torch.Tensor, train_length: int) -> None:
    problems: list[Problem] = []
    for side, tokens, more in (("training", train, "a smaller"), ("validation", val, "a larger")):
        if len(tokens) < 2:
            found = f"a source whose {side} split has {len(tokens)} token"
            fix = f"{more} data.val_fraction, or a source with more text (data.path)"
            problems.append(
                Problem("data", found, "each split has at least 2 tokens: one to read, one to predict", fix)
            )
    if 2 <= len(train) <= train_length:
        found = f"{train_length}, and the training split has {len(train)} tokens"
        rule = f"the training split has at least model.train_length + 1 = {train_length + 1} tokens"
        fix = f"model.train_length={len(train) - 1} or less, or a source with more text (data.path)"
        problems.append(Problem("model.train_length", found, rule, fix))
    if problems:
        raise ConfigError(problems)


def _refuse_padding(tokenizer: Tokenizer, train: torch.Tensor, val: torch.Tensor) -> None:
    count = int((train == tokenizer.pad).sum() + (val == tokenizer.pad).sum())
    if count:
        found = f"id {tokenizer.pad}, which the text itself encodes to (found {count} of them)"
        fix = "tokenizer.pad=<a token that no text contains>"
        raise ConfigError(
            [Problem("tokenizer.pad", found, "the padding id is never a target, so no text may hold it", fix)]
        )
