"""Documents packed whole into rows, none of which sees another."""

from __future__ import annotations

import torch
from torch import Tensor

from ..order import of_step, shuffled
from ..ragged import Ragged, numbered
from ..tokenizer import Tokenizer
from . import MASKS, Batch, Samples, Shape


class Documents(Samples):
    """Rows of T + ahead tokens that hold whole documents, `segments` being their numbers; a pick is that of a row.

    A document of more tokens is cut into pieces (data/ragged), each a document of its own. Rows are the same in every
    epoch, in another order; which documents share one makes no difference to what a model sees.
    """

    whole_rows = False

    def __init__(self, row: Tensor | Ragged, shape: Shape, tokenizer: Tokenizer):
        self.texts, self.shape, self.tokenizer = Ragged.of(row, tokenizer.eos), shape, tokenizer
        self.pad = tokenizer.pad
        pieces = self.texts.cut(shape.length, shape.ahead)
        packed = best_fit(pieces.lengths, shape.width)
        self.pieces = pieces[torch.tensor([piece for row in packed for piece in row], dtype=torch.int64)]
        self.counts = torch.tensor([len(row) for row in packed], dtype=torch.int64)  # (R,)
        self.firsts = self.counts.cumsum(0) - self.counts  # (R,)
        owner = numbered(self.counts)[0]
        self.filled = torch.zeros_like(self.counts).index_add_(0, owner, self.pieces.lengths)  # (R,)

    def picks(self, seed: int, step: int, batch: int) -> Tensor:
        count = len(self.counts)
        return of_step(step, batch, count, lambda epoch: shuffled(count, seed, epoch))

    def every(self) -> Tensor:
        return torch.arange(len(self.counts))

    def rows(self, picks: Tensor, mine: slice = slice(None)) -> Batch:
        held = picks[mine]
        owner, number = numbered(self.counts[held])  # (P,)
        which = self.firsts[held][owner] + number  # (P,)
        real = torch.arange(self.shape.width) < self.filled[held, None]  # (B, W)
        tokens = torch.full(real.shape, self.pad)
        segments = torch.zeros(real.shape, dtype=torch.int64)
        tokens[real] = self.pieces.joined(which)
        segments[real] = (number + 1).repeat_interleave(self.pieces.lengths[which])
        made = {"tokens": tokens, "segments": segments}
        return made if (self.filled[picks] == self.shape.width).all() else made | {MASKS["tokens"]: real}

    def at(self, length: int) -> Documents:
        return Documents(self.texts, Shape(length, self.shape.ahead), self.tokenizer)

    @property
    def largest_id(self) -> int:
        return int(self.texts.row.max())


def best_fit(lengths: Tensor, width: int) -> list[list[int]]:
    """Rows of the pieces that they hold: the longest piece first, each into the row with the least room that takes it.

    Best-fit decreasing, which needs at most 11/9 of the fewest rows and some (Johnson et al. 1974).
    """
    rows: list[list[int]] = []
    with_room: list[list[int]] = [[] for _ in range(width + 1)]  # the rows that have so much room left
    rooms = 0  # bit r: whether there is a row with room r
    sizes = lengths.tolist()
    for piece in lengths.argsort(descending=True, stable=True).tolist():
        enough = rooms >> sizes[piece] << sizes[piece]
        if enough:
            room = (enough & -enough).bit_length() - 1
            row = with_room[room].pop()
            rooms ^= (not with_room[room]) << room
            rows[row].append(piece)
        else:
            room, row = width, len(rows)
            rows.append([piece])
        if left := room - sizes[piece]:
            with_room[left].append(row)
            rooms |= 1 << left
    return rows
