"""From a list of records of two texts, or a text and its label, to a corpus: split, tokenizer, lengths, rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NoReturn

import torch
from torch import Tensor

from ..errors import ConfigError, Problem
from .corpus import Corpus, opening
from .digest import digest
from .ragged import Ragged
from .samples import Shape
from .samples.records import Contrastive, Labelled, Pairs, Records
from .texts import refuse_padding
from .tokenizer import Tokenizer

Record = tuple[str, str]
Overlong = Literal["refuse", "truncate", "drop"]
_ROWS: dict[str, type[Records]] = {"pairs": Pairs, "labelled": Labelled, "contrastive": Contrastive}


def record_corpus(records: Sequence[Record], config: Any, tokenizer_config: Any, shape: Shape, cache: Path) -> Corpus:
    """The records of a source of kind `config.kind`: a source and its target, a text and its label, or two texts.

    Every text ends in the tokenizer's `eos`, with which it has at most model.train_length tokens. Raises ConfigError
    when there are longer ones and `config.overlong` doesn't say what becomes of them, when a split is empty, when there
    is but one label, or where the padding id stands in a text.
    """
    rows = _ROWS[config.kind]
    halves = split_records(records, config.val_fraction)
    labels = rows.labels_of(records)
    texts = [text for record in halves[0] for text in record[: len(rows.keys)]]
    tokenizer: Tokenizer = tokenizer_config.component.prepare(tokenizer_config, texts, cache)
    read = [_Side.of(half, rows.keys, tokenizer) for half in halves]
    refuse_padding(tokenizer, *(field.row for side in read for field in side.fields.values()))
    if config.overlong == "refuse":
        found = torch.cat([side.longest for side in read])
        refuse_longer(found, [record[0] for side in read for record in side.records], shape.length)
    train, val = (side.fitted(config.overlong, shape.length, tokenizer.eos) for side in read)
    samples = [rows(side.fields, tokenizer, side.seconds, labels) for side in (train, val)]
    mark = digest(
        [tokenizer.fingerprint, str(len(halves[0])), *(text for half in halves for one in half for text in one)]
    )
    size = None
    if rows.writes_second and config.overlong != "truncate":
        size = sum(len(text.encode()) for text in val.seconds) / int(val.fields["tokens"].lengths.sum())
    return Corpus(tokenizer, samples[0], samples[1], mark, config.kind, size, labels, opening=opening(texts))


def split_records(records: Sequence[Record], fraction: float) -> tuple[list[Record], list[Record]]:
    """Training and validation, both in the order of the source: those whose first text is held out, by its hash.

    No first text stands on both sides. Raises ConfigError when a side is left empty.
    """
    together: dict[str, int] = {}
    for first, _ in records:
        together[first] = together.get(first, 0) + 1
    held: set[str] = set()
    count = 0
    for text in sorted(together, key=lambda text: digest([text])):
        if count >= fraction * len(records):
            break
        held.add(text)
        count += together[text]
    train = [record for record in records if record[0] not in held]
    val = [record for record in records if record[0] in held]
    if train and val:
        return train, val
    side = "validation" if train else "training"
    found = f"{fraction} over {len(records)} records with {len(together)} first texts, which leaves no {side} record"
    rule = "both splits hold records, and no first text stands in both"
    _refuse("data.val_fraction", found, rule, "another data.val_fraction, or a source with more records")


@dataclass(frozen=True)
class _Side:
    """The records of one split, and the tokens of their texts by the key that they have in a batch."""

    records: Sequence[Record]
    fields: dict[str, Ragged]

    @classmethod
    def of(cls, records: Sequence[Record], keys: tuple[str, ...], tokenizer: Tokenizer) -> _Side:
        rows = {key: tokenizer.encode_corpus([one[place] for one in records]) for place, key in enumerate(keys)}
        return cls(records, {key: Ragged.of(row, tokenizer.eos) for key, row in rows.items()})

    @property
    def seconds(self) -> list[str]:
        return [second for _, second in self.records]

    @property
    def longest(self) -> Tensor:
        """The tokens of the longest text of each record: (N,) int64."""
        return torch.stack([field.lengths for field in self.fields.values()]).amax(0)

    def fitted(self, overlong: Overlong, length: int, eos: int) -> _Side:
        """The records in at most `length` tokens: those that are longer cut off, or left out."""
        if overlong == "truncate":
            return _Side(self.records, {key: field.clipped(length, eos) for key, field in self.fields.items()})
        kept = short_enough(self.longest, length)
        return _Side([self.records[i] for i in kept.tolist()], {key: f[kept] for key, f in self.fields.items()})


def short_enough(lengths: Tensor, length: int) -> Tensor:
    """The numbers of the records of a split that are no longer than that. Raises ConfigError when all are."""
    kept = (lengths <= length).nonzero().flatten()
    if not len(kept):
        found = f"drop, and all of the {len(lengths)} records of a split are longer than {length} tokens"
        fix = f"data.overlong=truncate, or a longer model.train_length than {length}"
        _refuse("data.overlong", found, "each split keeps a record", fix)
    return kept


def fitted(tokens: Sequence[Tensor], beside: Sequence[Tensor], *, drop: bool, length: int) -> tuple[Ragged, Ragged]:
    """The rows of at most `length` tokens, or cut off there, and what stands beside each token, alike in shape."""
    lengths = torch.tensor([len(ids) for ids in tokens])
    rows = Ragged(torch.cat(list(tokens)), lengths.cumsum(0) - lengths, lengths)
    rows = rows[short_enough(lengths, length)] if drop else replace(rows, lengths=lengths.clamp_max(length))
    return rows, replace(rows, row=torch.cat(list(beside)).long())


def refuse_longer(found: Tensor, texts: Sequence[str], length: int) -> None:
    """Raises ConfigError when some of the lengths `found` (N,), of records that begin with `texts`, are too large."""
    if count := int((found > length).sum()):
        text = texts[int(found.argmax())]
        told = f"{count} of {len(found)} records longer than model.train_length={length}, the longest of {found.max()}"
        shown = repr(text[:40] + ("..." if len(text) > 40 else ""))
        fix = f"model.train_length={found.max()}, data.overlong=truncate or data.overlong=drop"
        _refuse("data.overlong", f"refuse, and {told} tokens: {shown}", "a text is read whole, with its end", fix)


def _refuse(path: str, found: str, rule: str, fix: str) -> NoReturn:
    raise ConfigError([Problem(path, found, rule, fix)])
