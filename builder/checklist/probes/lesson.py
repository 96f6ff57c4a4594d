"""What a specimen is taught: the run in small, and batches such as its data gives, with every kind of row in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from builder.data.tokenizer import Tokenizer
from builder.model.language_model import LanguageModel
from builder.registry import find
from builder.spec import RunSpec
from builder.training.losses import Losses
from builder.training.objective import Batch, Objective, Task

from . import LENGTH, Specimen

_ROWS = 5
_DRAWS = tuple(range(_ROWS))
"""The seeds of what an objective draws for each row."""


@dataclass(frozen=True)
class Lesson:
    """A specimen, and the run whose objective and optimizer it meets; ids are numbers, and what is special."""

    specimen: Specimen
    run: RunSpec

    @property
    def model(self) -> LanguageModel:
        """The model that is taught."""
        return self.specimen.model

    @cached_property
    def spec(self) -> RunSpec:
        """The same run of the small model; nothing of it is compiled."""
        return self.run.model_copy(update={"model": self.model.spec, "compile": False})

    @cached_property
    def objective(self) -> Objective:
        """What the run is asked for."""
        kind: Any = self.run.objective.component
        return kind(self.run.objective)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """A tokenizer with as many ids as the specimen has rows, and the special tokens of the objective."""
        config = self._symbols(self.plain)
        return config.component.prepare(config, (), Path())

    @property
    def plain(self) -> int:
        """How many ids are numbers: all rows but those that the tokenizer has beside them."""
        return self.model.vocab_size - (self._symbols(1).size - 1)

    def _symbols(self, count: int) -> Any:
        specials = self.objective.specials(self.run.objective)
        return find("tokenizer", "symbols").Config(name="symbols", n_symbols=count, specials=specials)

    @cached_property
    def batches(self) -> tuple[dict[str, Tensor], ...]:
        """What the data gives: rows that are plain, packed, padded, of a prompt and its answer, and without target."""
        data: Any = self.run.data
        return tuple(BATCHES[data.kind](self))

    def task(self, batch: Batch) -> Task:
        """A batch as it is trained on: what is drawn for a row is the same each time."""
        return self.objective.task(self.objective.collate(dict(batch), _DRAWS, self.tokenizer))

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """All batches, made ready."""
        return tuple(self.task(batch) for batch in self.batches)

    def loss(self, model: LanguageModel, task: Task) -> Tensor:
        """The loss of a step, as a run computes it: nats per target, and what layers add."""
        total, targets, aux = Losses(model, self.objective, self.spec).of(task)
        return total / targets.clamp_min(1) + sum(aux.losses.values())

    def numbers(self, rows: int, length: int, seed: int) -> Tensor:
        """Tokens that are nothing special, (B, T)."""
        return torch.randint(self.plain, (rows, length), generator=torch.Generator().manual_seed(seed))


def _text(lesson: Lesson) -> list[dict[str, Tensor]]:
    """A plain batch, and one whose rows are whole, packed, padded, of prompt and answer, and without a target."""
    width = LENGTH + lesson.objective.ahead
    place, row = torch.arange(width), torch.arange(_ROWS)[:, None]
    tokens = lesson.numbers(_ROWS, width, seed=3)
    ends = torch.tensor([width, width, width - 3, width, width // 2])[:, None]
    real = place < ends  # (B, T)
    second = (row == 1) & (place >= width // 2)
    counted = ((row != 3) | (place >= width // 2)) & (row != 4)
    told = tokens.clone()
    told[1, width // 2 - 1] = told[2, width - 4] = lesson.tokenizer.eos
    told = torch.where(real, told, lesson.tokenizer.pad)
    segments = torch.where(real, 1 + second.long(), 0)
    return [
        {"tokens": tokens},
        {"tokens": told, "attention_mask": real, "segments": segments, "counted": counted & real},
    ]


def _pairs(lesson: Lesson) -> list[dict[str, Tensor]]:
    tokens, real = _padded(lesson, LENGTH + 1, seed=3)
    tokens[:, 0] = lesson.tokenizer.start
    source, there = _padded(lesson, LENGTH - 1, seed=4)
    return [{"source": source, "source_mask": there, "tokens": tokens, "attention_mask": real}]


def _labelled(lesson: Lesson) -> list[dict[str, Tensor]]:
    tokens, real = _padded(lesson, LENGTH, seed=3)
    return [{"tokens": tokens, "attention_mask": real, "labels": torch.arange(_ROWS) % _classes(lesson)}]


def _tagged(lesson: Lesson) -> list[dict[str, Tensor]]:
    tokens, real = _padded(lesson, LENGTH, seed=3)
    labels = torch.arange(_ROWS * LENGTH).view(_ROWS, LENGTH) % _classes(lesson)  # (B, T)
    first = torch.arange(LENGTH) % 2 == 0  # of a word: what follows has no label
    return [{"tokens": tokens, "attention_mask": real, "labels": torch.where(real & first, labels, -1)}]


def _contrastive(lesson: Lesson) -> list[dict[str, Tensor]]:
    (tokens, real), (other, there) = (_padded(lesson, LENGTH, seed) for seed in (3, 4))
    return [{"tokens": tokens, "attention_mask": real, "other": other, "other_mask": there}]


def _padded(lesson: Lesson, length: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows of two lengths, (B, T) and where they are real."""
    real = torch.arange(length) < length - 3 * (torch.arange(_ROWS)[:, None] % 2)
    return torch.where(real, lesson.numbers(_ROWS, length, seed), lesson.tokenizer.pad), real


def _classes(lesson: Lesson) -> int:
    """How many numbers the head gives."""
    with torch.no_grad():
        return lesson.model(lesson.specimen.tokens, **lesson.specimen.beside()).logits.shape[-1]


def moved(lesson: Lesson, batch: Batch, place: int) -> dict[str, Tensor]:
    """The batch with another token at one place of every row."""
    tokens = batch["tokens"].clone()
    tokens[:, place] = (tokens[:, place] + 1) % lesson.plain
    return {**batch, "tokens": tokens}


def joined(tasks: list[Task]) -> Task:
    """Several tasks of one shape as one, behind each other."""
    fields = {name: [getattr(task, name) for task in tasks] for name in vars(tasks[0])}
    return replace(tasks[0], **{name: torch.cat(told) for name, told in fields.items() if isinstance(told[0], Tensor)})


BATCHES: dict[str, Callable[[Lesson], list[dict[str, Tensor]]]] = {
    "text": _text,
    "pairs": _pairs,
    "labelled": _labelled,
    "tagged": _tagged,
    "contrastive": _contrastive,
}
"""The batches of each kind of data, whose keys data/samples describes."""
