"""What one optimizer step reads: all of a window, and of rows that are padded what is real."""

from __future__ import annotations

from typing import Any

from builder.data import Corpus
from builder.spec import RunSpec

_STEPS = 16
"""Steps over which the mean is taken where rows are of several lengths."""


def tokens_of_step(spec: RunSpec, corpus: Corpus) -> int:
    """Real tokens that a step reads, the mean over the first steps, rounded; of pairs those of the target.

    A function of config and data alone, so that a step stands at the same place of the axis in every run of them.
    """
    kind: Any = spec.objective.component
    objective = kind(spec.objective)
    read = []
    for step in range(_STEPS):
        batch = corpus.train.rows(corpus.train.picks(spec.seed, step, spec.rows))
        made = objective.collate(batch, list(range(spec.rows)), corpus.tokenizer)
        read.append(int(objective.task(made).counts[1]))
        if len(read) == 2 and read[0] == read[1] == spec.rows * spec.model.train_length:
            break  # whole windows, of which none differs
    return round(sum(read) / len(read))
