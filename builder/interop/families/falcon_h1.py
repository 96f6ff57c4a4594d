"""Falcon-H1 (Zuo et al. 2025): an attention and Mamba-2 side by side in every layer, and factors everywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from builder.interop.facts import Facts
from builder.interop.family import Family
from builder.interop.field import FLAG, Field, Formula
from builder.interop.hf_config import ANY, HFConfig
from builder.interop.rope import Rope
from builder.interop.rule import Rule

from .llama import AROUND, Llama
from .mamba import SILU
from .mamba2 import Limits, headed

_LAYER, _OURS = "model.layers.{n}", "layers.{n}"
_ATTENTION, _SSM = "ssm.attention", "ssm.ssm"
_NONE = Formula(lambda factor: None if factor == 1 else factor, lambda factor: factor)
"""A factor of theirs that is 1, where ours is then left out."""


def _five(values: Any) -> list[float] | None:
    if not isinstance(values, list | tuple) or len(values) != 5:
        raise KeyError(values)
    return None if all(value == 1 for value in values) else list(values)


def _inside(rule: Rule) -> Rule:
    """The rule of a mixer that is the recurrence beside an attention."""
    ours = (rule.ours,) if isinstance(rule.ours, str) else rule.ours
    return replace(rule, ours=tuple(name.replace(".mixer.", ".mixer.ssm.") for name in ours))


class _Limits(Limits):
    ours = f"{_SSM}.dt_limit"


class FalconH1(Family):
    """transformers.FalconH1ForCausalLM; by its activation go the convolutions too, so that it is silu."""

    model_type = "falcon_h1"
    architecture = "FalconH1ForCausalLM"
    base = Llama.base
    fixed = {
        "ssm": {"name": "hybrid_head", "attention": {"name": "gqa"}, "ssm": {"name": "mamba2"}},
        "ffn": {"name": "glu"},
        "norm": {"name": "rmsnorm"},
        "block": {"name": "pre_norm"},
        "position": {"name": "none"},  # the attentions have one of their own
        "pattern": ["ssm+ffn"],
    }
    fields = (
        Field("d_model", "hidden_size"),
        Field("n_layers", "num_hidden_layers"),
        Field(f"{_ATTENTION}.n_heads", "num_attention_heads", 32),
        Field(f"{_ATTENTION}.n_kv_heads", "num_key_value_heads", 8, nullable=True),
        Field(f"{_ATTENTION}.d_head", "head_dim", None),
        Field(f"{_ATTENTION}.bias", "attention_bias", False, FLAG),
        Field(f"{_ATTENTION}.dropout", "attention_dropout", 0.0),
        Rope(f"{_ATTENTION}.position", fraction=None),
        Field(f"{_SSM}.d_state", "mamba_d_state", 256),
        Field(f"{_SSM}.d_conv", "mamba_d_conv", 4),
        Field(f"{_SSM}.n_groups", "mamba_n_groups", 1),
        Field(f"{_SSM}.conv_bias", "mamba_conv_bias", True),
        Field(f"{_SSM}.norm", "mamba_rms_norm", False),
        Field(f"{_SSM}.factors", "ssm_multipliers", None, Formula(_five, list, "five numbers")),
        _Limits(),
        Field("ssm.attention_in", "attention_in_multiplier", 1.0),
        Field("ssm.attention_out", "attention_out_multiplier", 1.0),
        Field("ssm.ssm_in", "ssm_in_multiplier", 1.0),
        Field("ssm.ssm_out", "ssm_out_multiplier", 1.0),
        Field("ffn.d_ff", "intermediate_size", 14336),
        Field("ffn.activation", "hidden_act", "silu", SILU),
        Field("ffn.bias", "mlp_bias", False),
        Field("embedding.scale", "embedding_multiplier", 1.0, _NONE),
        Field("head.scale", "lm_head_multiplier", 1.0, _NONE),
        Field(("norm.eps", f"{_SSM}.norm_eps"), "rms_norm_eps", 1e-5),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 8192),
        Field("tie_embeddings", "tie_word_embeddings", False),
    )
    neutral = {
        # theirs would add a bias to the steps' own, and keeps that of the way back apart
        **dict.fromkeys(("mamba_proj_bias", "projectors_bias"), (False,)),
        "mamba_chunk_size": ANY,  # in what pieces it is computed
        "num_logits_to_keep": ANY,  # of a prompt
        # of other code; nothing reads them
        **dict.fromkeys(("mamba_use_mlp", "mlp_expansion_factor", "expansion_factor"), ANY),
        **dict.fromkeys(("attn_layer_indices", "time_step_min", "time_step_max", "time_step_floor"), ANY),
    }
    rules = (
        *(rule for rule in AROUND if "mlp" not in rule.theirs and "model.norm" not in rule.theirs),
        Rule("model.final_layernorm", "final_norm"),
        Rule(f"{_LAYER}.input_layernorm", f"{_OURS}.mixer_norm"),
        Rule(f"{_LAYER}.pre_ff_layernorm", f"{_OURS}.ffn_norm"),
        *(Rule(f"{_LAYER}.self_attn.{name}_proj", f"{_OURS}.mixer.attention.{name}") for name in "qkvo"),
        *(Rule(f"{_LAYER}.feed_forward.{name}_proj", f"{_OURS}.ffn.{name}") for name in ("gate", "up", "down")),
        *(_inside(rule) for rule in headed(f"{_LAYER}.mamba")),
    )
    ignorable = Llama.ignorable

    def read(self, config: HFConfig) -> dict[str, Any]:
        """Keys times a factor are scores times that factor."""
        section = super().read(config)
        attention, ssm = (section["ssm"][side] for side in ("attention", "ssm"))
        channels, count = self._channels(config, section["d_model"]), config.get("mamba_n_heads", 128)
        if not isinstance(count, int) or isinstance(count, bool) or count < 1 or channels % count:
            config.refuse("mamba_n_heads", f"a whole number that divides the {channels} channels", f"{channels}")
        elif config.get("mamba_d_head", "auto") not in ("auto", channels // count):
            config.refuse("mamba_d_head", f"{count} heads have {channels} channels together", f"{channels // count}")
        config.judge()
        ssm |= {"d_inner": channels, "d_head": channels // count}
        first = config.get("mamba_norm_before_gate", True)
        ssm |= {"norm_before_gate": first} if ssm["norm"] else {}
        width = attention.get("d_head") or section["d_model"] // attention["n_heads"]
        keys = config.get("key_multiplier", 1.0)
        if not isinstance(keys, int | float) or isinstance(keys, bool) or keys <= 0:
            config.refuse("key_multiplier", "a number above 0", "1.0")
            config.judge()
        attention["scale"] = keys * width**-0.5
        gate, down = self._pair(config)
        section["ffn"] |= {"gate_scale": gate, "scale": down}
        return section

    def _channels(self, config: HFConfig, d_model: int) -> int:
        """Of the recurrence: as many as are stated, or a multiple of the stream's."""
        times, stated = config.get("mamba_expand", 2), config.get("mamba_d_ssm")
        null = config.states("mamba_d_ssm") and stated is None
        channels = times * d_model if null else 1024 if stated is None else stated
        if not isinstance(channels, int) or isinstance(channels, bool) or channels < 1:
            config.refuse("mamba_expand" if null else "mamba_d_ssm", "a whole number of at least 1", "1024")
            config.judge()
        return channels

    def _pair(self, config: HFConfig) -> tuple[Any, Any]:
        pair = config.get("mlp_multipliers", [1.0, 1.0])
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            config.refuse("mlp_multipliers", "two numbers", "[1.0, 1.0]")
            config.judge()
        return pair[0], pair[1]

    def write(self, facts: Facts) -> dict[str, Any]:
        attention, ssm = facts[_ATTENTION], facts[_SSM]
        made = super().write(facts) | {
            "key_multiplier": attention["scale"] * attention["d_head"] ** 0.5,
            "mamba_d_ssm": ssm["d_inner"],
            "mamba_n_heads": ssm["d_inner"] // ssm["d_head"],
            "mamba_d_head": ssm["d_head"],
            "mamba_norm_before_gate": ssm["norm_before_gate"],
            "mlp_multipliers": [facts["ffn.gate_scale"], facts["ffn.scale"]],
        }
        return made | {key: 1.0 for key in ("embedding_multiplier", "lm_head_multiplier") if made[key] is None}
