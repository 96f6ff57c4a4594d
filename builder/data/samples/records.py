"""Rows of two texts, or of a text and its label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from ...errors import ConfigError, Problem
from ..ragged import Ragged
from ..tokenizer import Tokenizer
from . import MASKS, Batch
from .padded import Padded


class Records(Padded):
    """Rows of one record each; they are as long as they are, whatever length is asked for.

    `fields` holds the texts under `keys`, `seconds` the second half of each record, `labels` the names of all labels.
    """

    keys: ClassVar[tuple[str, ...]]
    """Under which keys of a batch the texts of a record stand, in its order."""
    writes_second: ClassVar[bool] = False
    """Whether the second text is what the model is asked for."""

    def __init__(
        self, fields: Mapping[str, Ragged], tokenizer: Tokenizer, seconds: Sequence[str], labels: tuple[str, ...]
    ):
        super().__init__(fields, tokenizer)

    @classmethod
    def labels_of(cls, records: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        """The names of the labels, in the order of their numbers; raises ConfigError when they tell nothing apart."""
        return ()

    def at(self, length: int) -> Records:
        return self


class Pairs(Records):
    """A `source` and the `tokens` to write, before which the id that begins a text stands: `bos`, or else `eos`."""

    keys = ("source", "tokens")
    writes_second = True

    def rows(self, picks: Tensor, mine: slice = slice(None)) -> Batch:
        batch = super().rows(picks, mine)
        return batch if self.tokenizer.start == self.tokenizer.bos else begun(batch, self.tokenizer)  # stands there


def begun(batch: Batch, tokenizer: Tokenizer) -> Batch:
    """A batch of pairs with the id that begins a text before its `tokens`: (B, U) becomes (B, U + 1)."""
    before = batch["tokens"].new_full((len(batch["tokens"]), 1), tokenizer.start)  # (B, 1)
    made = batch | {"tokens": torch.cat([before, batch["tokens"]], 1)}  # (B, U + 1)
    if (mask := MASKS["tokens"]) in batch:
        made[mask] = torch.cat([torch.ones_like(before, dtype=torch.bool), batch[mask]], 1)  # (B, U + 1)
    return made


class Labelled(Records):
    """`tokens` and the number of their label."""

    keys = ("tokens",)

    def __init__(
        self, fields: Mapping[str, Ragged], tokenizer: Tokenizer, seconds: Sequence[str], labels: tuple[str, ...]
    ):
        super().__init__(fields, tokenizer, seconds, labels)
        numbers = {label: number for number, label in enumerate(labels)}
        self.labels = torch.tensor([numbers[label] for label in seconds], dtype=torch.int64)  # (N,)

    @classmethod
    def labels_of(cls, records: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        labels = tuple(sorted({second for _, second in records}))
        if len(labels) < 2:
            found = f"{len(records)} records, all with the label {labels[0]!r}" if labels else "no records"
            raise ConfigError([Problem("data", found, "at least 2 labels to tell apart", "a source with more labels")])
        return labels

    def rows(self, picks: Tensor, mine: slice = slice(None)) -> Batch:
        return super().rows(picks, mine) | {"labels": self.labels[picks[mine]]}

    def targets(self, batch: Batch) -> Tensor:
        return batch["labels"]


class Contrastive(Records):
    """Two texts that belong together, `tokens` and `other`."""

    keys = ("tokens", "other")

    def targets(self, batch: Batch) -> Tensor:
        return batch["tokens"][:, 0]
