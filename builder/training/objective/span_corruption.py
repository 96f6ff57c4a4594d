"""Predict spans that were cut out of a text: the objective that T5 is trained with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from builder.data.tokenizer import Tokenizer
from builder.registry import register
from builder.training.objective import draws_of
from builder.training.objective.seq2seq import Seq2Seq


@register("objective", "span_corruption")
class SpanCorruption(Seq2Seq):
    """The source is a text with spans taken out, the target those spans (Raffel et al. 2020):

        text     a b c d e f g h      source   a b <0> e f <1> h      target   <0> c d <1> g <eos>

    Of n real tokens round(n share) are taken out, in round(n share / span) spans of lengths drawn alike, each of at
    least one token, and none at the start of a text.
    """

    ahead = 0
    reads = ("text",)
    loss_mask = "the sentinels, the spans behind them and the end are targets; what stays in the source never"

    class Config(Seq2Seq.Config):
        """What is taken out, and how.

        share       of the tokens that are taken out
        span        tokens of a span, on average
        sentinels   special tokens that stand for spans, each in its place: as many as a text may lose
        """

        name: str = "span_corruption"
        share: Annotated[float, Field(gt=0, lt=1)] = 0.15
        span: Annotated[float, Field(ge=1)] = 3.0
        sentinels: PositiveInt = 100

    config: Config

    @classmethod
    def specials(cls, config: SpanCorruption.Config) -> tuple[str, ...]:
        return tuple(f"sentinel_{number}" for number in range(config.sentinels))

    def collate(self, batch: dict[str, Tensor], draws: Sequence[int], tokenizer: Tokenizer) -> dict[str, Tensor]:
        real, pad = batch.get("attention_mask"), tokenizer.pad
        names = self.specials(self.config)
        marks = torch.tensor([tokenizer.named[name] for name in names])
        sources, targets = [], []
        for row, draw in enumerate(draws_of(draws)):
            text = batch["tokens"][row] if real is None else batch["tokens"][row][real[row]]
            source, target = self._cut(text, marks, draw)
            sources.append(source)
            targets.append(torch.cat((marks.new_tensor([tokenizer.start]), target, marks.new_tensor([tokenizer.eos]))))
        (source, source_mask), (tokens, real) = _padded(sources, pad), _padded(targets, pad)
        made = {"source": source, "source_mask": source_mask, "tokens": tokens, "attention_mask": real}
        if "counted" in batch:  # rows of which nothing counts stay so
            made["counted"] = batch["counted"].any(1, keepdim=True).expand_as(tokens)
        return made

    def _cut(self, text: Tensor, marks: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """A text (n,) without its spans, and the spans: (source, target), a sentinel in the place of each."""
        length = len(text)
        lost = min(max(round(length * self.config.share), 1), length - 1)
        if length < 2:
            return text, text[:0]
        spans = min(max(round(lost / self.config.span), 1), lost, length - lost, len(marks))
        kept, gone = _partition(length - lost, spans, draw), _partition(lost, spans, draw)
        turns = torch.stack((kept, gone), 1).flatten()  # (2 spans,) kept and lost by turns
        number = torch.arange(2 * spans).repeat_interleave(turns)  # (n,) of its stretch
        hidden = number % 2 == 1
        first = torch.ones_like(hidden)
        first[1:] = number[1:] != number[:-1]
        mark = marks[number // 2]
        source = torch.where(hidden, mark, text)[~hidden | first]
        flagged = torch.stack((mark, text), 1)  # (n, 2)
        use = torch.stack((hidden & first, hidden), 1)
        return source, flagged[use]

    def blank(self, rows: int, length: int, device: str) -> dict[str, Tensor]:
        lost = max(round(length * self.config.share), 1)
        spans = max(round(lost / self.config.span), 1)
        source = torch.empty(rows, length - lost + spans, dtype=torch.long, device=device)
        tokens = torch.empty(rows, lost + spans + 2, dtype=torch.long, device=device)
        masks = {"source_mask": source.to(torch.bool), "attention_mask": tokens.to(torch.bool)}
        return {"source": source, "tokens": tokens, **masks}


def _partition(total: int, parts: int, draw: torch.Generator) -> Tensor:
    """`total` in `parts` whole numbers of at least 1, every way alike: (parts,) int64."""
    cuts = torch.randperm(total - 1, generator=draw)[: parts - 1].sort().values + 1
    ends = torch.cat((cuts, cuts.new_tensor([total])))
    return ends.diff(prepend=ends.new_zeros(1))


def _padded(rows: list[Tensor], pad: int) -> tuple[Tensor, Tensor]:
    """Rows of several lengths as one (B, T), and where they are real."""
    lengths = torch.tensor([len(row) for row in rows])
    filled = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)  # (B, T)
    return filled, torch.arange(filled.shape[1]) < lengths[:, None]
