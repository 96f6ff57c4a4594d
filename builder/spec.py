"""What a config may say of a run: RunSpec, its sections and its architecture, frozen and strictly typed."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from .architecture import ModelSpec
from .budget import BudgetSpec
from .component import Config, Room, refuse_all
from .frozen import FrozenDict
from .identity import fingerprint
from .section import Section
from .sections import BatchSpec, EmaSpec, GuardSpec, OutputSpec, SampleSpec, Seed
from .trainer import CHOICES, faults

VERSION = 1
"""The version of this schema; written into every frozen config."""

EXECUTION = (
    *("compile", "fused_loss", "activation_checkpointing", "batch.micro_batch"),
    *(f"trainer.{key}" for key in ("accelerator", "devices", "num_nodes", "strategy")),
)
"""How a run is computed, not what: a run may go on under others, since its steps stay those of the same batches."""

_TRAINER: dict[str, Any] = {
    key: {"anyOf": [{"enum": [*words, None]}, {"type": "object"}]} for key, words in CHOICES.items()
}
"""What a JSON Schema says of the trainer's arguments: the words of those that have few."""


class RunSpec(Section):
    """One run, whole: what is built, on what it is trained, and how.

    trainer, logger, callbacks  other people's classes by `_target_`
    compile                     the whole model, or its blocks, which share what was compiled; in training alone
    activation_checkpointing    the slots whose activations are computed again in the backward pass, or all of them
    fused_loss                  the loss from the hidden states, a part of the vocabulary at a time: no logits are kept
    """

    version: Literal[1] = VERSION
    seed: Seed
    model: ModelSpec
    data: Annotated[Config, Room("data")]
    tokenizer: Annotated[Config, Room("tokenizer")]
    objective: Annotated[Config, Room("objective")]
    optimizer: Annotated[Config, Room("optimizer")]
    schedule: Annotated[Config, Room("schedule")]
    batch: BatchSpec
    guard: GuardSpec | None = None
    ema: EmaSpec | None = None
    budget: BudgetSpec | None = None
    trainer: Annotated[dict[str, Any], Field(json_schema_extra={"properties": _TRAINER})]
    compile: Literal[False, True, "blocks"] = False
    activation_checkpointing: bool | Annotated[tuple[str, ...], Field(strict=False)] = False
    fused_loss: bool = False
    logger: dict[str, dict[str, Any]] = Field(default={}, validate_default=True)
    callbacks: dict[str, dict[str, Any]] = Field(default={}, validate_default=True)
    sample: SampleSpec
    output: OutputSpec

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.trainer["max_steps"]

    def to_dict(self) -> dict[str, Any]:
        """The whole config, every default filled in, as plain Python."""
        return self.model_dump(mode="json")

    @property
    def hash(self) -> str:
        """The identity of the run: its config, less output, logger, callbacks, sample, budget and execution."""
        return fingerprint(self, without=("output", "logger", "callbacks", "sample", "budget", *EXECUTION))

    @property
    def rows(self) -> int:
        """Sequences that one optimizer step reads, over all ranks and micro-batches."""
        return self.batch.sequences or (self.batch.tokens or 0) // self.model.train_length

    @property
    def recomputed(self) -> tuple[str, ...]:
        """The slots whose activations are computed again in the backward pass."""
        asked = self.activation_checkpointing
        return tuple(self.model.slots) if asked is True else asked or ()

    @model_validator(mode="after")
    def _tokens_are_whole_sequences(self) -> Self:
        length, tokens = self.model.train_length, self.batch.tokens
        if tokens is not None and tokens % length:
            rule = f"a multiple of model.train_length={length}: a step reads whole sequences"
            near = max(1, round(tokens / length)) * length
            refuse_all([("batch.tokens", tokens, rule, f"batch.tokens={near}")])
        return self

    @model_validator(mode="after")
    def _slots_are_named_right(self) -> Self:
        slots = ", ".join(self.model.slots)
        wrong = [slot for slot in self.recomputed if slot not in self.model.slots]
        rule = f"slots of the model, or true for all; slots: {slots}"
        refuse_all([("activation_checkpointing", wrong, rule, "activation_checkpointing=true")] if wrong else [])
        return self

    @field_validator("trainer")
    @classmethod
    def _trainer_leaves_the_run_its_own(cls, trainer: dict[str, Any]) -> dict[str, Any]:
        refuse_all(faults(trainer))
        return FrozenDict(trainer)

    @field_validator("logger", "callbacks")
    @classmethod
    def _nothing_changes_them(cls, nodes: dict[str, Any]) -> dict[str, Any]:
        return FrozenDict(nodes)
