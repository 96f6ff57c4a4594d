"""What is learnt: an objective turns a batch into inputs, targets and a loss mask, and says which is which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from builder.component import Component
from builder.component import Config as BaseConfig
from builder.data.tokenizer import Tokenizer

Batch = Mapping[str, Tensor]


@dataclass(frozen=True)
class Task:
    """One batch made ready: what the model reads and what it is asked.

    inputs          (B, T) int64; (B, N, T) where a row is of N texts
    targets         int64, one for each number of the head's that is asked: (B, T), or (B,) of a whole row
    loss_mask       of the shape of the targets, bool, true where one counts; None: everywhere
    attention_mask  of the shape of the inputs, bool, true where a real token stands; None: everywhere
    segments        (B, T) the documents of a packed row
    prefix          (B, T) bool, what is seen in both directions
    source          (B, S) int64, what an encoder-decoder reads, and where it is real in `source_mask`
    """

    inputs: Tensor
    targets: Tensor
    loss_mask: Tensor | None = None
    attention_mask: Tensor | None = None
    segments: Tensor | None = None
    prefix: Tensor | None = None
    source: Tensor | None = None
    source_mask: Tensor | None = None

    def split(self, rows: int) -> list[Task]:
        """The same in parts of `rows` rows, the last of which may have fewer."""
        parts = {
            name: value.split(rows) if isinstance(value, Tensor) else None
            for name, value in ((field.name, getattr(self, field.name)) for field in fields(self))
        }
        inputs = parts["inputs"] or ()
        several = ({name: row[number] if row else None for name, row in parts.items()} for number in range(len(inputs)))
        return [Task(**values) for values in several]  # type: ignore[arg-type]

    @property
    def read(self) -> tuple[Tensor, dict[str, Tensor]]:
        """What the model is called with: tokens (B, T), or (B N, T), and what there is beside them."""
        beside = ("attention_mask", "segments", "prefix", "source", "source_mask")
        given = {name: value for name in beside if (value := getattr(self, name)) is not None}
        if "attention_mask" in given:
            given["attention_mask"] = given["attention_mask"].flatten(0, -2)  # (B N, T)
        return self.inputs.flatten(0, -2), given  # (B N, T)

    @property
    def counts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Scalars: targets that count, real tokens that are read, and rows that hold any."""
        full = self.inputs.new_full  # filled there: no copy to wait for
        targets = full((), self.targets.numel()) if self.loss_mask is None else self.loss_mask.sum()
        if self.attention_mask is None:
            return targets, full((), self.inputs.numel()), full((), len(self.inputs))
        return targets, self.attention_mask.sum(), self.attention_mask.flatten(1).any(1).sum()


class Smoothed(BaseConfig):
    """`label_smoothing` s: in training a target is (1 - s) of its class and s of all alike (Szegedy et al. 2016); what
    is validated is the plain loss."""

    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0


class Objective(Component):
    """Built as `Objective(config)`; asked for a Task per batch, and for the loss of what the head gave.

    ahead       tokens that a window of text holds beyond model.train_length: 1 where each predicts the next
    reads       the kinds of data it is made of: text, pairs, labelled, contrastive
    kinds       the kinds of model it trains, and `gives`, the heads: what these give
    prefix      whether the model must have a prefix
    specials    special tokens that it writes into batches, by name
    figures     what `metrics` says, by name
    together    whether the loss of a row depends on the others, so that a batch can't be computed in parts
    language    whether a target is a token of a text, so that exp(loss) is a perplexity
    """

    ahead: ClassVar[int] = 1
    reads: ClassVar[tuple[str, ...]] = ("text",)
    kinds: ClassVar[tuple[str, ...]] = ("decoder",)
    gives: ClassVar[tuple[str, ...]] = ("tokens",)
    prefix: ClassVar[bool] = False
    figures: ClassVar[tuple[str, ...]] = ("accuracy",)
    together: ClassVar[bool] = False
    language: ClassVar[bool] = True
    attention_mask: str
    """In a few words, what a position may see: for the checklist."""
    loss_mask: str
    """In a few words, what is counted: for the checklist."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "metrics" in cls.__dict__ and "figures" not in cls.__dict__:
            raise TypeError(f"{cls.__name__}: figures isn't stated, and has the names of what its metrics says")

    def __init__(self, config: Any):
        self.config = config

    @classmethod
    def asked(cls, kind: str) -> tuple[str, ...]:
        """What a head must give where the data is of this kind: some of `gives`."""
        return cls.gives

    @classmethod
    def specials(cls, config: Any) -> tuple[str, ...]:
        """The names of the special tokens that it needs beside `eos` and `pad`."""
        return ()

    @classmethod
    def shows(cls, config: Any) -> float:
        """The share of targets that stay in what is read, on purpose."""
        return 0.0

    @classmethod
    def validates(cls, config: Any) -> dict[str, Any]:
        """What decides which targets a validation has, and how their loss is counted: equal where, on the same rows,
        val/loss means the same. All knobs are in it but those of Smoothed, which training alone reads."""
        return config.model_dump(mode="json", exclude=Smoothed.model_fields.keys() - BaseConfig.model_fields.keys())

    def collate(self, batch: dict[str, Tensor], draws: Sequence[int], tokenizer: Tokenizer) -> dict[str, Tensor]:
        """A batch as it is trained on, from one of the data's: what is drawn for a row comes from its number in
        `draws` alone."""
        return batch

    def blank(self, rows: int, length: int, device: str) -> dict[str, Tensor]:
        """A batch of the largest size as `collate` leaves it, its tensors empty."""
        return {"tokens": torch.empty(rows, length + self.ahead, dtype=torch.long, device=device)}

    def task(self, batch: dict[str, Tensor]) -> Task:
        """A batch from the loader as a Task."""
        raise NotImplementedError

    def nats(self, logits: Tensor, targets: Tensor, counted: Tensor | None, smooth: bool = False) -> Tensor:
        """The sum of the cross-entropies of rows: logits (N, V), targets (N,), counted (N,) bool or None for all."""
        smoothing = getattr(self.config, "label_smoothing", 0.0) if smooth else 0.0
        losses = F.cross_entropy(logits.float(), targets, reduction="none", label_smoothing=smoothing)  # (N,)
        return losses.sum() if counted is None else (losses * counted.to(losses.dtype)).sum()

    def loss(self, logits: Tensor, task: Task, smooth: bool = False) -> tuple[Tensor, Tensor]:
        """(sum of the cross-entropies in nats, how many targets count) from logits (..., V), in float32."""
        return self.nats(logits.flatten(0, -2), *_rows(task), smooth), _count(task)

    def fused(self, hidden: Tensor, head: Any, task: Task, smooth: bool = False) -> tuple[Tensor, Tensor]:
        """The same from the hidden states (B, T, D), and the logits of a piece of them at a time."""
        targets, counted = _rows(task)

        def piece(logits: Tensor, rows: slice) -> Tensor:
            return self.nats(logits, targets[rows], None if counted is None else counted[rows], smooth)

        return head.summed(hidden, piece), _count(task)

    def measure(self, logits: Tensor, task: Task) -> dict[str, Tensor]:
        """Sums over a batch that is validated, from which `metrics` makes figures: how many targets were likeliest."""
        targets, counted = _rows(task)
        right = logits.flatten(0, -2).argmax(-1) == targets  # (N,)
        return {"right": (right if counted is None else right & counted).sum()}

    def metrics(self, sums: Mapping[str, Tensor], targets: float) -> dict[str, float]:
        """Figures of a validation, from the sums over all of it and the number of targets that counted."""
        return {"accuracy": sums["right"].item() / targets} if "right" in sums and targets else {}


def _rows(task: Task) -> tuple[Tensor, Tensor | None]:
    return task.targets.flatten(), None if task.loss_mask is None else task.loss_mask.flatten()  # (N,)


def _count(task: Task) -> Tensor:
    if task.loss_mask is not None:
        return task.loss_mask.sum(dtype=torch.float32)
    return task.targets.new_full((), task.targets.numel(), dtype=torch.float32)  # filled there: no copy to wait for


def both(*masks: Tensor | None) -> Tensor | None:
    """Where all masks that are there hold; None: there is none."""
    found = [mask for mask in masks if mask is not None]
    return torch.stack(found).all(0) if len(found) > 1 else found[0] if found else None


def shifted(batch: Batch, across_documents: bool = False) -> Task:
    """Each token predicts the next: tokens (B, T + 1) as inputs (B, T) and targets (B, T).

    A target counts where it is real, where `counted` says so, and where it is of its predictor's own document, unless
    `across_documents`.
    """
    tokens, real, segments = batch["tokens"], batch.get("attention_mask"), batch.get("segments")
    counted = batch.get("counted")
    same = None if segments is None or across_documents else segments[:, 1:] == segments[:, :-1]
    ahead = None if real is None else real[:, 1:]
    return Task(
        tokens[:, :-1],
        tokens[:, 1:],
        loss_mask=both(ahead, same, None if counted is None else counted[:, 1:]),
        attention_mask=None if real is None else real[:, :-1],
        segments=None if segments is None else segments[:, :-1],
    )


def draws_of(seeds: Sequence[int]) -> list[torch.Generator]:
    """A generator for each row of a batch, so that what is drawn for it is the same on any rank."""
    return [torch.Generator().manual_seed(seed) for seed in seeds]
