"""How texts begin and end in tokens: once, and often enough for a model that writes to learn when to stop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from builder.data.samples import MASKS, Batch, Samples
from builder.data.tokenizer import Tokenizer
from builder.finding import Finding, Status

from .spelling import Tried

GAP = torch.iinfo(torch.int64).min
"""What stands in the place of padding: no tokenizer has such an id."""
_RARE = 0.01  # more unknown tokens than these, and what is read is another text than what was written


def whole(tokenizer: Tokenizer) -> Finding:
    """A text as data holds it, alone and among others: what is put around it stands there once."""
    known = Tried.on(tokenizer, (tokenizer.trials() or ["a text"])[-1])
    text = "" if known.error else known.text  # a few words may be all that it knows
    try:
        alone, inside = list(tokenizer.whole(text)), tokenizer.encode_corpus([text, text]).tolist()
    except Exception as error:  # a tokenizer of another house may raise anything
        found = f"{type(error).__name__}: {error}"
        return Finding(
            Status.FAIL, 6, "tokenizer", found, "it makes tokens of a text as data holds it", "tokenizer=bytes"
        )
    bos, eos = tokenizer.bos, tokenizer.eos
    begun = bos is None or (alone[:1] == [bos] and alone.count(bos) == 1)
    ended = alone[-1:] == [eos] and alone.count(eos) == 1 + (bos == eos)
    before = "nothing" if bos is None else f"bos {bos}"
    found = f"{before} before a text, eos {eos} behind it"
    if begun and ended and inside == alone * 2:
        return Finding(Status.PASS, 6, "tokenizer", found, "each stands there once, in data as in a prompt")
    shown = f"{found}; {text!r} is {alone}, and twice in a corpus {inside}"
    rule = "each stands there once, in data as in a prompt: a second one is a text that begins anew"
    fix = "a tokenizer whose own template puts nothing there that it puts there itself"
    return Finding(Status.FAIL, 6, "tokenizer", shown, rule, fix)


@dataclass(frozen=True)
class Read:
    """Some rows of the training data: tokens (B, W) int64 under each key of a batch, GAP where none is real."""

    rows: Batch

    @classmethod
    def of(cls, samples: Samples, count: int) -> Read:
        """At most `count` rows, from all over the data: those of one length, or one source, may stand together."""
        every = samples.every()
        count = min(count, len(every))
        spread = torch.arange(count) * (len(every) - 1) // max(1, count - 1)
        batch = samples.rows(every[spread])
        rows = {key: batch[key] for key in MASKS if key in batch}
        masks = {key: batch[mask] for key, mask in MASKS.items() if mask in batch}
        return cls({key: row.masked_fill(~masks[key], GAP) if key in masks else row for key, row in rows.items()})

    @property
    def ids(self) -> Tensor:
        """All of them in a row (N,), without the gaps."""
        every = torch.cat([row.flatten() for row in self.rows.values()])
        return every[every != GAP]

    def ended(self, eos: int) -> int:
        """How many texts end in what the model is asked for."""
        return int((self.rows["tokens"] == eos).sum())

    def doubled(self, bos: int) -> int:
        """How often a beginning stands behind a beginning."""
        return sum(int(((row[:, 1:] == bos) & (row[:, :-1] == bos)).sum()) for row in self.rows.values())


def of_data(tokenizer: Tokenizer, read: Read, unknown: int | None) -> Iterator[Finding]:
    """What the training data holds of what no text should."""
    ids = read.ids
    if unknown is not None:
        share = float((ids == unknown).float().mean())
        found = f"{share:.2%} of {len(ids):,} tokens from all over the training data are the unknown id {unknown}"
        rule = f"what is unknown can neither be read nor written; up to {_RARE:.0%} is let pass"
        fix = "tokenizer=bpe or bytes, which know every character" * (share > _RARE)
        yield Finding(Status.WARN if fix else Status.PASS, 6, "data", found, rule, fix)
    bos = tokenizer.bos
    if bos is not None and (twice := read.doubled(bos)):
        rule = "a text begins once: the data, or its template, writes what the tokenizer puts there itself"
        found = f"bos {bos} behind itself, {twice:,} times in {len(ids):,} tokens from all over the training data"
        yield Finding(Status.WARN, 6, "data", found, rule, "texts or a data.template without it")


def ended(tokenizer: Tokenizer, read: Read) -> Finding:
    """Whether the training data shows a model that writes where to stop."""
    ends = read.ended(tokenizer.eos)
    found = f"eos {tokenizer.eos} ends {ends:,} texts in {len(read.ids):,} tokens from all over the training data"
    if ends:
        return Finding(Status.PASS, 6, "data", found, "what is written can end by itself: training shows it how")
    rule = "a model that hardly ever sees an end goes on to the deploy length, or to max_new_tokens"
    return Finding(Status.WARN, 6, "data", found, rule, "sample.max_new_tokens=200, or a source of shorter texts")
