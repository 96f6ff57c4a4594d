"""Random configs over everything that can be written in one: what there is, is read off the registry and the Configs.

A new component, or a new knob, is drawn by existing. `CHOICES` only narrows what a knob of that name means, so that
models stay tiny and most of them fit together; a knob that isn't named there is drawn by its type and its bounds.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from copy import deepcopy
from random import Random
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from builder import registry
from builder.architecture import EncoderSpec, ModelSpec
from builder.budget import BudgetSpec
from builder.component import Room
from builder.data.source import TaskSource
from builder.spec import RunSpec

from .knobs import CHOICES, ODD, SAID, TRIES, UNSAID
from .sources import Sources


class Drawn:
    """What is drawn for one config."""

    def __init__(self, rng: Random, sources: Sources):
        self._rng, self.sources = rng, sources
        self.d_model, self.n_heads = self.of(CHOICES["d_model"]), self.of(CHOICES["n_heads"])

    def below(self, n: int) -> int:
        """A number from 0 to n - 1."""
        return self._rng.randrange(n)

    def of(self, options: Sequence[Any]) -> Any:
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        """True as often as that."""
        return self.below(100) < percent

    def section(self, schema: type[BaseModel], place: str = "", depth: int = 0, **given: Any) -> dict[str, Any]:
        """Keys of a section or a component: those that must be, some of the others, and those `given`."""
        drawn = dict(given)
        for key, field in schema.model_fields.items():
            if key in given or key == "name" or (key in UNSAID and schema is RunSpec):
                continue
            if field.is_required() or key in SAID or self.chance(30):
                drawn[key] = self.value(key, field.annotation, list(field.metadata), place, depth)
        return drawn

    def value(self, key: str, kind: Any, marks: list[Any], place: str = "", depth: int = 0) -> Any:
        """Something that a key of that type and those bounds may hold."""
        if get_origin(kind) is Annotated:
            kind, *more = get_args(kind)
            return self.value(key, kind, [*marks, *more], place, depth)
        marks = [mark for each in marks for mark in (each.metadata if isinstance(each, FieldInfo) else [each])]
        if (room := next((mark for mark in marks if isinstance(mark, Room)), None)) is not None:
            return self.slot(room.rooms, depth + 1)
        if key == "n_heads":
            return self.n_heads if not self.chance(10) else self.of(CHOICES[key])
        if key in ("short_factor", "long_factor"):
            return [1.0] * max(1, self.d_model // self.n_heads // 2)
        choices = CHOICES.get(f"{place}.{key}", CHOICES.get(key))
        if choices is not None:
            return deepcopy(self.of(choices))
        if get_origin(kind) in (Union, types.UnionType):
            return self.value(key, self.of(get_args(kind)), marks, place, depth)
        return self._plain(key, kind, marks, place, depth)

    def _plain(self, key: str, kind: Any, marks: list[Any], place: str, depth: int) -> Any:
        if kind in (None, type(None)):
            return None
        if get_origin(kind) is Literal:
            return self.of(get_args(kind))
        if kind is bool:
            return self.of((False, True))
        if kind in (int, float):
            return self._number(kind, marks)
        if kind is str:
            return "a"
        if get_origin(kind) is tuple:
            return self._list(key, get_args(kind), marks, place, depth)
        if get_origin(kind) is dict:
            inner = get_args(kind)[1]
            return {name: self.value(key, inner, [], place, depth) for name in "ab"[: 1 + self.below(2)]}
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return self.section(kind, key, depth)
        raise NotImplementedError(f"{place}.{key}: nothing is drawn for {kind}; teach it to strategies.py")

    def _number(self, kind: type, marks: list[Any]) -> Any:
        options = (1, 2, 3, 4, 16) if kind is int else (0.5, 1.0, 2.0, 0.1, 0.01, 4.0)
        return self.of([kind(number) for number in options if _within(number, marks)])

    def _list(self, key: str, kinds: tuple[Any, ...], marks: list[Any], place: str, depth: int) -> list[Any]:
        if kinds[-1] is not Ellipsis:
            return [self.value(key, kind, [], place, depth) for kind in kinds]
        least = next((mark.min_length for mark in marks if hasattr(mark, "min_length")), 0)
        most = next((mark.max_length for mark in marks if getattr(mark, "max_length", None)), least + 2)
        return [self.value(key, kinds[0], [], place, depth) for _ in range(least + self.below(most - least + 1))]

    def slot(self, rooms: Sequence[str], depth: int, fits: Callable[[type], bool] = lambda found: True) -> Any:
        """A component of these rooms with some of its knobs; deep inside others, one that holds no other mixer."""
        every = [(room, name) for room in rooms for name in registry.names(room)]
        found = {pair: registry.find(*pair) for pair in every}
        able = [pair for pair in every if fits(found[pair]) and (depth < 2 or not _nests(found[pair].Config))]
        if not self.chance(3):
            able = [pair for pair in able if getattr(found[pair], "part", "mixer") != "cross"] or able
        if not self.chance(10):  # it sees the whole pass, which few models may
            able = [pair for pair in able if pair != ("router", "expert_choice")]
        if depth > 1:
            able = [pair for pair in able if getattr(found[pair], "alone", True) or self.chance(3)] or able
        _, name = pair = self.of(able)
        return self.component(found[pair].Config, name, depth)

    def component(self, schema: type[BaseModel], name: str, depth: int = 0, **given: Any) -> dict[str, Any]:
        """A component by its name; drawn anew while its own knobs don't go together, but now and then."""
        drawn: dict[str, Any] = {}
        for _ in range(1 if self.chance(3) else TRIES):
            drawn = {"name": name, **self.section(schema, name, depth, **given)}
            if _goes(schema, drawn):
                break
        return drawn


def _goes(schema: type[BaseModel], drawn: dict[str, Any]) -> bool:
    try:
        schema.model_validate(drawn)
    except ValidationError:
        return False
    return True


def _within(number: float, marks: list[Any]) -> bool:
    bounds = {"gt": number.__gt__, "ge": number.__ge__, "lt": number.__lt__, "le": number.__le__}
    return all(holds(getattr(mark, name)) is True for mark in marks for name, holds in bounds.items()
               if getattr(mark, name, None) is not None)  # fmt: skip


def _nests(schema: type[BaseModel]) -> bool:
    """Whether a component must hold another mixer, or an ffn."""
    required = [field for field in schema.model_fields.values() if field.is_required()]
    return any(
        isinstance(mark, Room) and mark.rooms[0] in registry.LAYER_ROOMS for f in required for mark in f.metadata
    )


def _model(drawn: Drawn, objective: type[Any], kind: str, data_kind: str) -> dict[str, Any]:
    """A model that the objective may train; drawn anew while its parts don't go together, but now and then."""
    model: dict[str, Any] = {}
    for _ in range(1 if drawn.chance(3) else TRIES):
        model = _parts(drawn, objective, kind, data_kind)
        blind = kind != "decoder" and model["position"]["name"] == "none"
        if _goes(ModelSpec, model) and not blind:
            break
    return model


def _parts(drawn: Drawn, objective: type[Any], kind: str, data_kind: str) -> dict[str, Any]:
    """Some layers, their slots, and what stands around them."""
    heads = [name for name in registry.names("head") if registry.find("head", name).gives in objective.asked(data_kind)]
    heads = registry.names("head") if drawn.chance(3) else heads
    head = registry.find("head", drawn.of(heads))
    slots: dict[str, Any] = {}
    mixers = ("attention", "local", "state")[: 1 + drawn.below(3)]
    for name in mixers:
        slots[name] = drawn.slot(registry.LAYER_ROOMS[:3], 0, lambda found: found.part == "mixer")
    for name in ("ffn", "wide")[: drawn.below(3)]:
        slots[name] = drawn.slot(("ffn",), 0)
    ffns = [name for name in slots if name not in mixers]
    if kind == "encoder_decoder":
        slots["cross"] = drawn.component(registry.find("attention", "cross").Config, "cross")

    def entry(cross: bool) -> str:
        parts = [drawn.of(mixers), *(["cross"] if cross and "cross" in slots else [])]
        return "+".join([*parts, *([drawn.of(ffns)] if ffns and not drawn.chance(15) else [])])

    pattern = [entry(cross=True) for _ in range(1 + drawn.below(3))]
    below = [entry(cross=False) for _ in range(1 + drawn.below(2))]
    used = {part for layer in [*pattern, *(below if "cross" in slots else [])] for part in layer.split("+")}
    slots = slots if drawn.chance(4) else {name: slot for name, slot in slots.items() if name in used}
    encoder = drawn.section(EncoderSpec, pattern=below) if kind == "encoder_decoder" else None
    given: dict[str, Any] = {
        "kind": kind,
        "d_model": drawn.d_model,
        "pattern": [f"{1 + drawn.below(2)} * {layer}" if drawn.chance(10) else layer for layer in pattern],
        "shared": [drawn.of(pattern)] if drawn.chance(12) else [],
        "prefix": objective.prefix != drawn.chance(3),
        "head": drawn.component(head.Config, head.Config.model_fields["name"].default),
        "tie_embeddings": drawn.of((True, False)) if head.gives == "tokens" or drawn.chance(3) else False,
        "final_norm": drawn.of((None,) * 20 + (True, False)),
        "encoder": encoder,
    }
    model = drawn.section(ModelSpec, "model", **given)
    model["n_layers"] = max(model["n_layers"], len(pattern)) if not drawn.chance(5) else model["n_layers"]
    carried = all(
        registry.find(registry.LAYER_ROOMS[:3], slots[name]["name"]).ordered for name in mixers if name in used
    )
    if kind == "decoder" and drawn.chance(95 if carried else 20):
        model["position"] = {"name": "none"}
    return {**model, **slots}


def _data(drawn: Drawn, reads: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any], str]:
    """(data, tokenizer, kind of data): a source that gives what is read, and a tokenizer that knows it."""
    name, form, kind = drawn.of([case for case in drawn.sources.cases if case[2] in reads] or drawn.sources.cases)
    source = registry.find("data", name)
    given = {} if form is None else {"form": form}
    data = drawn.component(source.Config, name, **given, **drawn.sources.where(name, form))
    if issubclass(source, TaskSource) and not drawn.chance(3):
        tokenizer = {"name": "symbols", "n_symbols": data["n_symbols"]}
    else:
        names = [name for name in registry.names("tokenizer") if name != "symbols" or drawn.chance(5)]
        chosen = drawn.of(["bytes", "bytes", *names])
        schema = registry.find("tokenizer", chosen).Config
        tokenizer = drawn.component(schema, chosen, **drawn.sources.where(chosen, None))
    return data, tokenizer, kind


def _spoilt(drawn: Drawn, config: dict[str, Any]) -> dict[str, Any]:
    """The config with one fault planted in it."""
    keys = [path for path in leaves(config) if path[0] not in UNSAID - {"trainer"}]
    *parents, key = drawn.of(keys)
    node = config
    for step in parents:
        node = node[step]
    match drawn.below(4):
        case 0:
            node[key] = drawn.of(ODD)
        case 1 if isinstance(node, dict):
            node[f"{key[:-1]}" if drawn.chance(50) else f"{key}s"] = node.pop(key)
        case 2:
            config[drawn.of(sorted(config.keys() - UNSAID))] = drawn.of(ODD)
        case _:
            held = drawn.of([config["model"], config["data"], config["batch"], config["optimizer"]])
            held[key if isinstance(key, str) else "d_ff"] = drawn.of((7, 33, "x"))
    return config


def leaves(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all that is no section, in order."""
    if isinstance(node, dict) and node:
        return [leaf for key, child in node.items() for leaf in leaves(child, (*path, key))]
    if isinstance(node, list) and node:
        return [leaf for place, child in enumerate(node) for leaf in leaves(child, (*path, place))]
    return [path] if path else []


def configs(sources: Sources, base: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Configs as a user's YAML would hold them, on top of the trainer, logger, callbacks and output of `base`.

    Hypothesis draws bits alone, so that what it draws depends on its seed and not on what else was imported.
    """
    bits = st.tuples(*[st.booleans()] * 64)
    return bits.map(lambda row: drawn_from(Random(sum(bit << place for place, bit in enumerate(row))), sources, base))


def drawn_from(rng: Random, sources: Sources, base: dict[str, Any]) -> dict[str, Any]:
    """One config."""
    drawn = Drawn(rng, sources)
    name = drawn.of(registry.names("objective"))
    objective = registry.find("objective", name)
    kind = drawn.of(objective.kinds) if not drawn.chance(3) else drawn.of(("decoder", "encoder", "encoder_decoder"))
    data, tokenizer, of = _data(drawn, objective.reads if not drawn.chance(3) else ("text", "pairs", "labelled"))
    model = _model(drawn, objective, kind, of)
    steps = drawn.of((40, 40, 4, 1))
    given = {
        "model": model,
        "data": data,
        "tokenizer": tokenizer,
        "objective": drawn.component(objective.Config, name),
        "activation_checkpointing": drawn.of((False, False, True, list(model["pattern"][0].split("+"))[:1])),
        "fused_loss": drawn.chance(20) and model["head"]["name"] == "language_model",
    }
    config = drawn.section(RunSpec, **given)
    if objective.together and not drawn.chance(10):
        config["batch"]["micro_batch"] = None
    if config["optimizer"]["name"] == "schedule_free" and not drawn.chance(15):
        config |= {"schedule": {"name": "constant", "warmup_steps": 2}, "ema": None}
    kept = {key: deepcopy(base[key]) for key in ("compile", "logger", "callbacks", "output")}
    config |= {**kept, "trainer": {**base["trainer"], "max_steps": steps}}
    if drawn.chance(3):
        cost = drawn.of(("params", "active_params", "flops", "state_bytes"))
        budget = {"target": drawn.of((30_000, 100_000)), "solve": drawn.of(("model.n_layers", "model.ffn.d_ff"))}
        config["budget"] = drawn.section(BudgetSpec, name=cost, **budget, solved=None)
    return _spoilt(drawn, config) if drawn.chance(15) else config
