"""How good a trained run is on the rows that it never trained on: its losses, and its answers where it gives any."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from builder.data import Corpus
from builder.data.loader import ValBatches
from builder.model.language_model import LanguageModel
from builder.spec import RunSpec
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

    Losses are means over targets, as in training. Where a target is written from a source, each row is answered too,
    greedily or by a beam search, and compared with what was wanted, beside two answers that need no model.
    """
    model.eval()
    objective: Any = spec.objective.component
    losses = Losses(model, objective(spec.objective), spec.model_copy(update={"compile": False, "fused_loss": False}))
    samples, size = corpus.val, min(spec.rows, 64)
    picks = samples.every()[:limit]
    batches = ValBatches(samples, batch=size, collate=lambda b, d: losses.objective.collate(b, d, corpus.tokenizer))
    total, targets = 0.0, 0.0
    sums: dict[str, Tensor] = {}
    count = math.ceil(len(picks) / size)
    device = model.embedding.weight.device
    for number, batch in enumerate(batches):
        if number == count:
            break
        task = losses.objective.task(
            {name: value[: len(picks) - number * size].to(device) for name, value in batch.items()}
        )
        nats, counted, found = losses.judged(task)
        total, targets = total + nats.double().item(), targets + counted.item()
        for name, value in found.items():
            sums[name] = sums[name] + value.double() if name in sums else value.double()
        tell("losses", number + 1, count)
    metrics = _figures(losses, total, targets, sums, corpus)
    if corpus.kind != "pairs" or spec.model.head.component.gives != "tokens":
        return Evaluation(len(picks), metrics)
    given = answers(model, corpus, picks, size, num_beams, tell)
    return Evaluation(len(picks), metrics, compare(given, corpus), tuple(given[:EXAMPLES]))


def _figures(
    losses: Losses, total: float, targets: float, sums: Mapping[str, Tensor], corpus: Corpus
) -> dict[str, float]:
    loss = total / targets if targets else math.nan
    told = {"val/loss": loss}
    told |= {f"val/{name}": value for name, value in losses.objective.metrics(sums, targets).items()}
    if losses.objective.language:
        told["val/perplexity"] = math.exp(min(loss, 700.0))
    if corpus.val_bytes_per_token is not None:
        told["val/bits_per_byte"] = loss / math.log(2) / corpus.val_bytes_per_token
    return told
