"""What a config may say: RunSpec and its sections, frozen and strictly typed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, NonNegativeInt, PositiveInt, field_validator, model_validator
from torch.nn import ModuleDict

from .budget import BudgetSpec
from .component import Config, Room, Site, refuse_all
from .ends import EmbeddingSpec, HeadSpec
from .frozen import FrozenDict
from .identity import fingerprint
from .layers import LayerSpec, Part, written_out
from .registry import LAYER_ROOMS
from .section import Section
from .sections import BatchSpec, EmaSpec, GuardSpec, OutputSpec, SampleSpec

VERSION = 1
"""The version of this schema; written into every frozen config."""

TAKEN = {
    *("callbacks", "logger", "plugins", "default_root_dir", "max_epochs", "accumulate_grad_batches"),
    *("enable_checkpointing", "enable_progress_bar", "enable_model_summary", "use_distributed_sampler"),
    "num_sanity_val_steps",
}
"""Arguments of Lightning's Trainer that the run sets itself."""

EXECUTION = (
    *("compile", "fused_loss", "activation_checkpointing", "batch.micro_batch"),
    *(f"trainer.{key}" for key in ("accelerator", "devices", "num_nodes", "strategy")),
)
"""How a run is computed, not what: a run may go on under others, since its steps stay those of the same batches."""

Slot = Annotated[Config, Room(*LAYER_ROOMS)]


class ModelSpec(Section):
    """An architecture. Besides these keys it holds the slots its pattern names: `attention`, `ffn`, or any other name.

    vocab_size      rows of the embedding; None: the tokenizer's size
    train_length    tokens a training sequence holds
    deploy_length   tokens a generation may reach, prompt and answer together
    pattern         the layers, tiled over n_layers; each is mixer [+ ffn], parts named by slot; `3 * a+b` is a+b thrice
    final_norm      None: as the block needs it
    """

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, allow_inf_nan=False)
    __pydantic_extra__: dict[str, Slot]

    kind: Literal["decoder"] = "decoder"
    d_model: PositiveInt
    n_layers: PositiveInt
    vocab_size: PositiveInt | None = None
    tie_embeddings: bool = True
    train_length: PositiveInt
    deploy_length: PositiveInt
    pattern: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = ("attention+ffn",)
    norm: Annotated[Config, Room("norm")]
    block: Annotated[Config, Room("block")]
    position: Annotated[Config, Room("position")]
    init: Annotated[Config, Room("init")]
    embedding: EmbeddingSpec = EmbeddingSpec()
    head: HeadSpec = HeadSpec()
    final_norm: bool | None = None

    @property
    def slots(self) -> dict[str, Config]:
        """The slots that a pattern may name."""
        return dict(self.__pydantic_extra__)

    @property
    def causal(self) -> bool:
        return self.kind == "decoder"

    @property
    def ends_in_norm(self) -> bool:
        """Whether a norm stands between the last layer and the head."""
        needed: bool = self.block.component.needs_final_norm
        return needed if self.final_norm is None else self.final_norm

    @property
    def layers(self) -> tuple[LayerSpec, ...]:
        """Every layer, the pattern tiled over n_layers."""
        parts = {entry: self._parts(entry) for entry in dict.fromkeys(self.pattern)}
        period = len(self.pattern)
        return tuple(LayerSpec(index, parts[self.pattern[index % period]]) for index in range(self.n_layers))

    @property
    def kinds(self) -> dict[str, tuple[LayerSpec, ...]]:
        """The layers by kind, as the pattern writes it."""
        found: dict[str, tuple[LayerSpec, ...]] = {}
        for layer in self.layers:
            found[str(layer)] = (*found.get(str(layer), ()), layer)
        return found

    @property
    def writes(self) -> int:
        """How many parts add to the residual stream, over all layers: 2 L in a Transformer."""
        return sum(len(layer.parts) for layer in self.layers)

    def site(self, layer: int) -> Site:
        """The facts that layer number `layer` shares with the model."""
        return Site(
            d_model=self.d_model,
            layer=layer,
            n_layers=self.n_layers,
            writes=self.writes,
            causal=self.causal,
            train_length=self.train_length,
            deploy_length=self.deploy_length,
            norm=self.norm,
            position=self.position,
        )

    @property
    def schemes(self) -> dict[str, Config]:
        """The position schemes: the model's under `model`, then those that mixer slots have of their own."""
        own = {slot: config.component.position_of(config) for slot, config in self.mixers.items()}
        return {"model": self.position} | {slot: config for slot, config in own.items() if config is not None}

    def scheme_of(self, layer: LayerSpec) -> str:
        """Under which name of `schemes` the scheme of a layer's mixer stands."""
        slot = layer.parts[0].slot
        return slot if slot in self.schemes else "model"

    def scheme_site(self, scheme: str) -> Site:
        """The site of a position scheme, which knows the number of heads that it serves."""
        schemes = self.schemes
        served = [c for slot, c in self.mixers.items() if (slot if slot in schemes else "model") == scheme]
        heads = {count for config in served if (count := config.component.heads_of(config)) is not None}
        return replace(self.site(0), n_heads=heads.pop() if len(heads) == 1 else None)

    @property
    def mixers(self) -> dict[str, Config]:
        """The mixer slots that layers use."""
        return {layer.parts[0].slot: layer.parts[0].config for layer in self.layers}

    def _parts(self, entry: str) -> tuple[Part, ...]:
        slots = [name.strip() for name in entry.split("+")]
        return tuple(Part(self.slots[name].component.part, name, self.slots[name]) for name in slots)

    @field_validator("pattern")
    @classmethod
    def _repeats_are_written_out(cls, pattern: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(written_out(pattern))

    @model_validator(mode="after")
    def _pattern_is_spelled_right(self) -> Self:
        refuse_all(fault for entry in dict.fromkeys(self.pattern) for fault in self._misspelt(entry))
        return self

    @model_validator(mode="after")
    def _slots_have_names_of_their_own(self) -> Self:
        taken = [slot for slot in self.slots if slot == "model" or hasattr(ModuleDict, slot)]
        rule = "the name of a slot becomes that of a module, and this one means something there"
        refuse_all((slot, self.slots[slot].name, rule, "another name, here and in model.pattern") for slot in taken)
        return self

    def _misspelt(self, entry: str) -> Iterator[tuple[str, str, str, str]]:
        undefined = [name for part in entry.split("+") if (name := part.strip()) not in self.slots]
        for name in undefined:
            rule = f"every part of the pattern is a slot of the model; slots: {', '.join(self.slots) or 'none'}"
            define = f"define model.{name}={{name: ...}}, or " if name else ""
            yield "pattern", entry, rule, f"{define}use one of the slots"
        kinds = [] if undefined else [part.kind for part in self._parts(entry)]
        if not undefined and kinds not in (["mixer"], ["mixer", "ffn"]):
            yield "pattern", entry, f"a layer is mixer [+ ffn], not {' + '.join(kinds)}", "e.g. attention+ffn"


class RunSpec(Section):
    """One run, whole: what is built, on what it is trained, and how.

    trainer, logger, callbacks  other people's classes by `_target_`
    compile                     the whole model, or its blocks, which share what was compiled; generation never is
    activation_checkpointing    the slots whose activations are computed again in the backward pass, or all of them
    fused_loss                  the loss from the hidden states, a part of the vocabulary at a time: no logits are kept
    """

    version: Literal[1] = VERSION
    seed: NonNegativeInt
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
    trainer: dict[str, Any]
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
        fix = "use callbacks, logger, output or batch"
        faults = [(key, trainer[key], "the run sets this itself", fix) for key in sorted(TAKEN & trainer.keys())]
        for key, example in (("max_steps", 1000), ("val_check_interval", 100), ("log_every_n_steps", 10)):
            steps = trainer.get(key)
            if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
                faults.append((key, steps, "a positive number of optimizer steps", f"e.g. trainer.{key}={example}"))
        refuse_all(faults)
        return FrozenDict(trainer)

    @field_validator("logger", "callbacks")
    @classmethod
    def _nothing_changes_them(cls, nodes: dict[str, Any]) -> dict[str, Any]:
        return FrozenDict(nodes)
