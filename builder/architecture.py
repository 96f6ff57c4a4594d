"""What an architecture is, as a config says it: its dimensions, its slots, the layers that its patterns spell."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, PositiveInt, field_validator, model_validator
from torch.nn import ModuleDict

from .component import Config, Room, Site, refuse_all
from .ends import LANGUAGE_MODEL, EmbeddingSpec
from .layers import KINDS, MOST, LayerSpec, Part, misspelt, spelt, written_out
from .registry import LAYER_ROOMS, find
from .section import Section

Slot = Annotated[Config, Room(*LAYER_ROOMS)]

Depth = Annotated[int, Field(gt=0, le=MOST)]
Width = Annotated[int, Field(gt=0, le=2**20)]
"""What is more than these was a slip of the finger."""


class EncoderSpec(Section):
    """The tower that reads the source, of the same slots: its layers, tiled over `n_layers` as the model's own are."""

    n_layers: Depth
    pattern: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = ("attention+ffn",)

    @field_validator("pattern")
    @classmethod
    def _repeats_are_written_out(cls, pattern: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(written_out(pattern))


class ModelSpec(Section):
    """An architecture. Besides these keys it holds the slots its pattern names: `attention`, `ffn`, or any other name.

    kind            decoder: a token sees those before it; encoder: all; encoder_decoder: a decoder whose layers may
                    have a part `cross`, which reads what the section `encoder` makes of a source
    vocab_size      rows of the embedding; None: the tokenizer's size
    train_length    tokens a training sequence holds
    deploy_length   tokens a generation may reach, prompt and answer together
    pattern         the layers, tiled over n_layers; each is mixer [+ cross] [+ ffn], parts named by slot; `3 * a+b` is
                    a+b thrice
    shared          entries of the pattern whose layers all use one set of weights (Lan et al. 2020; Glorioso et al.
                    2024)
    prefix          whether a prompt is seen in both directions, and the answer from left to right (Raffel et al. 2020)
    final_norm      None: as the block needs it
    """

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, allow_inf_nan=False)
    __pydantic_extra__: dict[str, Slot]

    kind: Literal["decoder", "encoder", "encoder_decoder"] = "decoder"
    d_model: Width
    n_layers: Depth
    vocab_size: PositiveInt | None = None
    tie_embeddings: bool = True
    train_length: PositiveInt
    deploy_length: PositiveInt
    pattern: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = ("attention+ffn",)
    shared: Annotated[tuple[str, ...], Field(strict=False)] = ()
    prefix: bool = False
    norm: Annotated[Config, Room("norm")]
    block: Annotated[Config, Room("block")]
    position: Annotated[Config, Room("position")]
    init: Annotated[Config, Room("init")]
    embedding: EmbeddingSpec = EmbeddingSpec()
    head: Annotated[Config, Room("head", default=LANGUAGE_MODEL)] = Field(
        default_factory=lambda: find("head", LANGUAGE_MODEL).Config()
    )
    final_norm: bool | None = None
    encoder: EncoderSpec | None = None

    @property
    def slots(self) -> dict[str, Config]:
        """The slots that a pattern may name."""
        return dict(self.__pydantic_extra__)

    @property
    def shares(self) -> frozenset[str]:
        """The kinds of layers of which all use one set of weights."""
        return frozenset("+".join(name.strip() for name in entry.split("+")) for entry in self.shared)

    @property
    def causal(self) -> bool:
        """Whether a token sees nothing behind it, but in a prefix."""
        return self.kind != "encoder"

    @property
    def source(self) -> ModelSpec | None:
        """The tower that reads the source, as a model of its own; None: there is none."""
        if self.encoder is None:
            return None
        own = {"n_layers": self.encoder.n_layers, "pattern": self.encoder.pattern}
        return self.model_copy(update={**own, "kind": "encoder", "encoder": None})

    @property
    def towers(self) -> dict[str, ModelSpec]:
        """The model, under "", and what reads its source, under `encoder`: stacks of layers, each described alike."""
        return {"": self} if (source := self.source) is None else {"": self, "encoder": source}

    @property
    def ends_in_norm(self) -> bool:
        """Whether a norm stands between the last layer and the head."""
        needed: bool = self.block.component.needs_final_norm
        return needed if self.final_norm is None else self.final_norm

    @property
    def layers(self) -> tuple[LayerSpec, ...]:
        """Every layer, the pattern tiled over n_layers."""
        slots = self.slots
        parts = {entry: spelt(entry, slots) for entry in dict.fromkeys(self.pattern)}
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
            prefix=self.prefix,
            train_length=self.train_length,
            deploy_length=self.deploy_length,
            norm=self.norm,
            position=self.position,
        )

    @property
    def schemes(self) -> dict[str, Config]:
        """The position schemes: the model's under `model`, then those that slots have of their own."""
        own = {slot: config.component.position_of(config) for slot, config in (self.mixers | self.crossed).items()}
        return {"model": self.position} | {slot: config for slot, config in own.items() if config is not None}

    def scheme_of(self, layer: LayerSpec) -> str:
        """Under which name of `schemes` the scheme of a layer's mixer stands."""
        slot = layer.mixer.slot
        return slot if slot in self.schemes else "model"

    def scheme_site(self, scheme: str) -> Site:
        """The site of a position scheme, which knows the number of heads that it serves."""
        crossed = self.crossed
        if scheme in crossed:  # the source stands to no side of what reads it
            heads = crossed[scheme].component.heads_of(crossed[scheme])
            return replace(self.site(0), n_heads=heads, causal=False)
        served, heads = self._served(scheme), self._heads_served(scheme)
        site = replace(self.site(0), n_heads=heads.pop() if len(heads) == 1 else None)
        one_way = all(config.component.ordered for config in served)  # of none too: what nobody asks sees to no side
        return replace(site, causal=True, prefix=False) if one_way else site

    def _served(self, scheme: str) -> list[Config]:
        """The mixers that use a scheme."""
        schemes = self.schemes
        return [config for slot, config in self.mixers.items() if (slot if slot in schemes else "model") == scheme]

    def _heads_served(self, scheme: str) -> set[int]:
        """How many heads they have, those that have any."""
        counts = (config.component.heads_of(config) for config in self._served(scheme))
        return {count for count in counts if count is not None}

    @property
    def unserved(self) -> list[str]:
        """The schemes that are made for a number of heads, on which the mixers that use them don't agree."""
        made = [name for name, config in self.schemes.items() if config.component.needs_heads]
        return [name for name in made if self.scheme_site(name).n_heads is None]

    @property
    def mixers(self) -> dict[str, Config]:
        """The mixer slots that layers use."""
        return {parts[0].slot: parts[0].config for parts in self._spelt}

    @property
    def crossed(self) -> dict[str, Config]:
        """The slots that layers use to read the source."""
        return {part.slot: part.config for parts in self._spelt for part in parts if part.kind == "cross"}

    @property
    def _spelt(self) -> list[tuple[Part, ...]]:
        """The parts of each kind of layer that there is."""
        slots = self.slots
        return [spelt(entry, slots) for entry in dict.fromkeys(self.pattern[: self.n_layers])]

    @field_validator("pattern")
    @classmethod
    def _repeats_are_written_out(cls, pattern: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(written_out(pattern))

    @model_validator(mode="after")
    def _pattern_is_spelled_right(self) -> Self:
        kinds = [kind for kind in KINDS if kind != "cross" or self.encoder is not None]
        patterns = [("pattern", self.pattern, kinds)]
        patterns += [] if self.encoder is None else [("encoder.pattern", self.encoder.pattern, ["mixer", "ffn"])]
        slots = self.slots
        refuse_all(
            fault for key, entries, may in patterns for entry in dict.fromkeys(entries)
            for fault in misspelt(key, entries, entry, slots, may)
        )  # fmt: skip
        return self

    @model_validator(mode="after")
    def _towers_fit_the_kind(self) -> Self:
        two, faults = self.kind == "encoder_decoder", []
        if two and self.encoder is None:
            rule = "an encoder_decoder has a section encoder: the layers that read the source"
            faults.append(("encoder", None, rule, f"model.encoder={{n_layers: {self.n_layers}}}"))
        if self.encoder is not None and not two:
            rule = f"only an encoder_decoder has one, and model.kind is {self.kind}"
            faults.append(("encoder", "a section", rule, "model.kind=encoder_decoder, or model.encoder=null"))
        if two and self.encoder is not None and not self.crossed:
            rule = "no layer reads what the encoder makes: a part cross does"
            fix = "model.pattern=[attention+cross+ffn] model.cross={name: cross, n_heads: ...}"
            faults.append(("pattern", list(self.pattern), rule, fix))
        if self.prefix and self.kind != "decoder":
            rule = f"only a decoder's prompt is a prefix, and model.kind is {self.kind}"
            faults.append(("prefix", True, rule, "model.prefix=false"))
        if self.tie_embeddings and self.head.component.gives != "tokens":
            rule = f"the head {self.head.name} has no rows for the vocabulary that could be the table's"
            faults.append(("tie_embeddings", True, rule, "model.tie_embeddings=false"))
        strange = [entry for entry in self.shared if entry not in (*self.pattern, *(self.encoder or self).pattern)]
        known = ",".join(entry for entry in self.shared if entry not in strange)
        rule = "entries of model.pattern, as it writes them"
        faults += [("shared", entry, rule, f"model.shared=[{known}]") for entry in strange]
        refuse_all(faults)
        return self

    @model_validator(mode="after")
    def _a_bias_by_head_has_heads(self) -> Self:
        faults: dict[str, tuple[str, str, str, str]] = {}
        for name, tower in self.towers.items():
            for scheme in tower.schemes.keys() - tower.crossed.keys():
                config, path = tower.schemes[scheme], "position" if scheme == "model" else f"{scheme}.position"
                if config.component.needs_heads and not tower._heads_served(scheme):
                    whose = f"mixer of the {name}" if name else "mixer"
                    rule = f"its bias has a number for each head, and no {whose} that uses it has heads"
                    faults[path] = (path, config.name, rule, f"model.{path}={{name: none}}")
        refuse_all(faults.values())
        return self

    @model_validator(mode="after")
    def _slots_have_names_of_their_own(self) -> Self:
        taken = [slot for slot in self.slots if slot == "model" or hasattr(ModuleDict, slot)]
        rule = "the name of a slot becomes that of a module, and this one means something there"
        refuse_all((slot, self.slots[slot].name, rule, "another name, here and in model.pattern") for slot in taken)
        return self
