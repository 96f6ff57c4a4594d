"""One text or record a row, rows of similar length together, each batch padded to its longest."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..order import bucketed, of_step
from ..ragged import Ragged
from ..tokenizer import Tokenizer
from . import MASKS, Batch, Samples, Shape


class Padded(Samples):
    """Rows of `fields`, the pieces of each under the key that they have in a batch; a pick is the number of a row.

    In training each epoch has an order of its own, in which rows of similar length stand together (data/order). In
    validation rows are in order of length.
    """

    def __init__(self, fields: Mapping[str, Ragged], tokenizer: Tokenizer):
        self.fields, self.tokenizer, self.pad = fields, tokenizer, tokenizer.pad
        self.lengths = torch.stack([field.lengths for field in fields.values()]).sum(0)  # (N,)

    def picks(self, seed: int, step: int, batch: int) -> Tensor:
        return of_step(step, batch, len(self.lengths), lambda epoch: bucketed(self.lengths, batch, seed, epoch))

    def every(self) -> Tensor:
        return self.lengths.argsort(stable=True)

    def rows(self, picks: Tensor, mine: slice = slice(None)) -> Batch:
        made: Batch = {}
        for name, field in self.fields.items():
            lengths = field.lengths[picks]  # (B,)
            made[name], real = field.padded(picks[mine], int(lengths.max()), self.pad)
            if (lengths != lengths[0]).any():
                made[MASKS[name]] = real
        return made

    @property
    def largest_id(self) -> int:
        return max(int(field.row.max()) for field in self.fields.values())


class Texts(Padded):
    """One document a row; one of more than T + ahead tokens is cut into pieces (data/ragged), each a row of its own."""

    whole_rows = False

    def __init__(self, row: Tensor | Ragged, shape: Shape, tokenizer: Tokenizer):
        self.texts, self.shape = Ragged.of(row, tokenizer.eos), shape
        super().__init__({"tokens": self.texts.cut(shape.length, shape.ahead)}, tokenizer)

    def at(self, length: int) -> Texts:
        return Texts(self.texts, Shape(length, self.shape.ahead), self.tokenizer)
