"""Mamba-2 (Dao & Gu 2024): layers of heads that decay by one number each, and nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from builder.interop.facts import Facts
from builder.interop.family import Family
from builder.interop.field import Entry, Field, Multiple
from builder.interop.form import Depthwise, Swapped
from builder.interop.hf_config import ANY, HFConfig
from builder.interop.rule import Rule

from .mamba import AROUND, DRAWN, SILU, STEPS, STREAM, Mamba, endless


@dataclass(frozen=True)
class Heads(Entry):
    """The channels of a layer of heads: `expand` times hidden_size, which is `count` heads of `width` each."""

    expand: str
    count: str
    width: str
    default: int | str
    """Of the width; "auto": what is left for each head."""

    @property
    def _channels(self) -> Multiple:
        return Multiple("ssm.d_inner", self.expand, 2)

    def read(self, config: HFConfig) -> dict[str, Any]:
        channels = self._channels.read(config)["ssm.d_inner"]
        count, width = config.get(self.count, 128), config.get(self.width, self.default)
        if not isinstance(count, int) or isinstance(count, bool) or count < 1 or channels % count:
            config.refuse(self.count, f"a whole number that divides the {channels} channels", f"{channels // 64 or 1}")
        elif width not in ("auto", channels // count):
            config.refuse(self.width, f"{count} heads have {channels} channels together", f"{channels // count}")
        config.judge()
        return {"ssm.d_inner": channels, "ssm.d_head": channels // count}

    def names(self, config: HFConfig) -> dict[str, str]:
        return {"ssm.d_inner": self.expand, "ssm.d_head": self.width}

    def write(self, facts: Facts) -> dict[str, Any]:
        heads = facts["ssm.d_inner"] // facts["ssm.d_head"]
        return self._channels.write(facts) | {self.count: heads, self.width: facts["ssm.d_head"]}


class Limits(Entry):
    """The steps' bounds, which are none from 0 to infinity: transformers 5 spells that {"__float__": "Infinity"}."""

    ours, theirs = "ssm.dt_limit", "time_step_limit"

    def read(self, config: HFConfig) -> dict[str, Any]:
        stated = config.get(self.theirs, [0.0, math.inf])
        bounds = [_number(value) for value in stated] if isinstance(stated, list | tuple) else []
        if len(bounds) != 2 or None in bounds or (bounds[1] == math.inf and bounds[0] != 0):
            config.refuse(self.theirs, "two numbers, the second finite unless the first is 0", "[0.0, Infinity]")
            config.judge()
        return {self.ours: None if bounds[1] == math.inf else bounds}

    def names(self, config: HFConfig) -> dict[str, str]:
        return {self.ours: self.theirs}

    def write(self, facts: Facts) -> dict[str, Any]:
        bounds = facts.get(self.ours)
        return {self.theirs: list(bounds)} if bounds else {}


def _number(value: Any) -> float | None:
    tagged = value.get("__float__") if isinstance(value, dict) else None
    if tagged == "Infinity":
        return math.inf
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def headed(theirs: str) -> tuple[Rule, ...]:
    """The rules of a layer of heads that is called `theirs`: its map makes gate, values, B, C and steps in one."""
    ours = "layers.{n}.mixer"
    named = {"dt_bias": "dt.bias", "A_log": "a_log", "D": "d", "norm": "norm", "out_proj": "output"}
    return (
        *(Rule(f"{theirs}.{name}", f"{ours}.{own}") for name, own in named.items()),
        Rule(f"{theirs}.in_proj", tuple(f"{ours}.{part}" for part in ("input", "b", "c", "dt")), Swapped()),
        Rule(f"{theirs}.conv1d", f"{ours}.conv", Depthwise()),
    )


class Mamba2(Family):
    """transformers.Mamba2ForCausalLM. Its config states no length: where a file does none either, that of the paper."""

    model_type = "mamba2"
    architecture = "Mamba2ForCausalLM"
    base = Mamba.base
    fixed = {**Mamba.fixed, "ssm": {"name": "mamba2"}}
    fields = (
        *STREAM,
        Field("ssm.d_state", "state_size", 128),
        Heads("expand", "num_heads", "head_dim", 64),
        Field("ssm.n_groups", "n_groups", 8),
        *STEPS,
        Limits(),
        Field(("norm.eps", "ssm.norm_eps"), "layer_norm_epsilon", 1e-5),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 2048),
        Field("tie_embeddings", "tie_word_embeddings", False),
    )
    neutral = {
        **DRAWN,
        "hidden_act": tuple(SILU.table),
        "use_bias": (False,),  # theirs adds one to the steps' own, and no file could tell the two apart again
        "chunk_size": ANY,  # in what pieces it is computed
        **dict.fromkeys(("intermediate_size", "time_step_rank"), ANY),  # of Mamba; nothing reads them
        "norm_before_gate": ANY,  # published files state it, and transformers' gate always comes first
    }
    rules = (*AROUND, *headed("backbone.layers.{n}.mixer"))

    def note(self, facts: Facts, config: HFConfig) -> str:
        return endless(facts)
