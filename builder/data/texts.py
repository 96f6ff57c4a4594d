"""From a list of documents to a corpus: split, tokenizer, layout, and the refusals that save a run from starting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from ..errors import ConfigError, Problem
from .corpus import Corpus, opening
from .digest import digest
from .ragged import Ragged
from .samples import Shape
from .samples.documents import Documents
from .samples.padded import Texts
from .samples.stream import Stream
from .split import split
from .tokenizer import Tokenizer

Packing = Literal["stream", "documents", "padded"]
_LAYOUTS: dict[str, Any] = {"stream": Stream, "documents": Documents, "padded": Texts}


def text_corpus(documents: Sequence[str], config: Any, tokenizer_config: Any, shape: Shape, cache: Path) -> Corpus:
    """The documents as `config` (of a text source) splits and lays them out; each is followed by the tokenizer's `eos`.

    Raises ConfigError when a split has fewer than 2 tokens, the training split fewer than a row, or the padding id
    stands in the text.
    """
    train_texts, val_texts = split(documents, config.val_fraction, config.split)
    tokenizer: Tokenizer = tokenizer_config.component.prepare(tokenizer_config, train_texts, cache)
    train, val = tokenizer.encode_corpus(train_texts), tokenizer.encode_corpus(val_texts)
    refuse_padding(tokenizer, train, val)
    size = sum(len(text.encode()) for text in val_texts) / len(val) if len(val) else None
    mark = mark_of(tokenizer, train_texts, val_texts)
    made = laid_out(train, val, config.packing, tokenizer, shape, mark, size)
    return replace(made, opening=opening(train_texts))


def mark_of(tokenizer: Tokenizer, train: Sequence[str], val: Sequence[str]) -> str:
    """The fingerprint of a corpus of these texts."""
    return digest([tokenizer.fingerprint, str(len(train)), *train, *val])


def laid_out(
    train: Tensor | Ragged,
    val: Tensor | Ragged,
    packing: Packing,
    tokenizer: Tokenizer,
    shape: Shape,
    mark: str,
    val_bytes_per_token: float | None,
) -> Corpus:
    """The tokens of both splits, documents that end in `eos`, as a corpus. Raises ConfigError for too few of them."""
    layout = _LAYOUTS[packing]
    counts = [len(side.row if isinstance(side, Ragged) else side) for side in (train, val)]
    _refuse_short(counts[0], counts[1], shape, whole_rows=layout.whole_rows)
    sides = layout(train, shape, tokenizer), layout(val, shape, tokenizer)
    return Corpus(tokenizer, *sides, fingerprint=mark, val_bytes_per_token=val_bytes_per_token if shape.ahead else None)


def _refuse_short(train: int, val: int, shape: Shape, *, whole_rows: bool) -> None:
    problems: list[Problem] = []
    for side, count, more in (("training", train, "a smaller"), ("validation", val, "a larger")):
        if count < 2:
            found = f"a source whose {side} split has {count} token"
            fix = f"{more} data.val_fraction, or a source with more text (data.path)"
            problems.append(
                Problem("data", found, "each split has at least 2 tokens: one to read, one to predict", fix)
            )
    if 2 <= train < shape.width and whole_rows:
        found = f"{shape.length}, and the training split has {train} tokens"
        more = f" + {shape.ahead} = {shape.width}" if shape.ahead else ""
        rule = f"the training split has at least model.train_length{more} tokens"
        fix = f"model.train_length={train - shape.ahead} or less, or a source with more text (data.path)"
        problems.append(Problem("model.train_length", found, rule, fix))
    if problems:
        raise ConfigError(problems)


def refuse_padding(tokenizer: Tokenizer, *rows: Tensor) -> None:
    """Raises ConfigError where the padding id stands in a text."""
    count = sum(int((row == tokenizer.pad).sum()) for row in rows)
    if count:
        found = f"id {tokenizer.pad}, which the text itself encodes to (found {count} of them)"
        fix = "tokenizer.pad=<a token that no text contains>"
        raise ConfigError(
            [Problem("tokenizer.pad", found, "the padding id is never a target, so no text may hold it", fix)]
        )
