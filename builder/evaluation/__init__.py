"""How good a trained run is on the rows that it never trained on: its losses, and its answers where it gives any."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from builder.data import Corpus
from builder.data.loader import ValBatches
from builder.errors import ConfigError, Problem
from builder.model.language_model import LanguageModel
from builder.spec import RunSpec
from builder.training.figures import Found
from builder.training.losses import Losses

from .answers import Answer, answers
from .scores import compare

Tell = Callable[[str, int, int], None]
"""Is told of what is done, how many batches are done, and how many there are."""


@dataclass(frozen=True)
class Evaluation:
    """What was found on the validation rows.

    rows        how many were read
    metrics     figures as a validation logs them, `val/...`
    scores      of the answers and of what needs no model, by who answers and by score; {} where there are no answers
    examples    a few answers beside what was wanted
    """

    rows: int
    metrics: Mapping[str, float]
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    examples: tuple[Answer, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The same in plain Python."""
        shown = [vars(example) for example in self.examples]
        return {"rows": self.rows, "metrics": dict(self.metrics), "scores": dict(self.scores), "examples": shown}


EXAMPLES = 8
"""Answers that are shown."""


@torch.no_grad()
def evaluate(
    spec: RunSpec, model: LanguageModel, corpus: Corpus, *, limit: int | None = None, num_beams: int = 1,
    tell: Tell = lambda what, done, total: None,
) -> Evaluation:  # fmt: skip
    """The figures of a model on the validation rows of its data, or on the first `limit` of them.

    Losses are means over targets, as in training, and of each source of a mixture apart. Where a target is written from
    a source, each row is answered too, greedily or by a beam search, and compared with what was wanted, beside two
    answers that need no model. Raises ConfigError for beams where there are no answers to search for.
    """
    answered = corpus.kind == "pairs" and spec.model.head.component.gives == "tokens"
    if num_beams > 1 and not answered:
        rule = "nothing reads it: answers are searched for, and this run gives none: no target is written from a source"
        raise ConfigError([Problem("num_beams", str(num_beams), rule, "num_beams=1")])
    model.eval()
    objective: Any = spec.objective.component
    losses = Losses(model, objective(spec.objective), spec.model_copy(update={"compile": False, "fused_loss": False}))
    size, found = min(spec.rows, 64), Found(losses.objective, corpus)
    batches = ValBatches(
        corpus.val, batch=size, collate=lambda b, d: losses.objective.collate(b, d, corpus.tokenizer), limit=limit
    )
    picks, device = batches.picks, model.embedding.weight.device
    for number, (source, batch) in enumerate(zip(batches.owners, batches, strict=True), 1):
        task = losses.objective.task({name: value.to(device) for name, value in batch.items()})
        found.add(source, losses.judged(task))
        tell("losses", number, len(batches))
    metrics = found.figures()
    if not answered:
        return Evaluation(len(picks), metrics)
    given = answers(model, corpus, picks, size, num_beams, tell)
    return Evaluation(len(picks), metrics, compare(given, corpus), tuple(given[:EXAMPLES]))
