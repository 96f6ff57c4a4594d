"""Mamba (Gu & Dao 2023): layers of a selective state-space model and nothing else."""

from __future__ import annotations

from builder.interop.facts import Facts
from builder.interop.family import Family
from builder.interop.field import Choice, Field, Formula, Multiple
from builder.interop.form import Depthwise
from builder.interop.hf_config import ANY, HFConfig
from builder.interop.rule import Rule

_LAYER = "backbone.layers.{n}"

SILU = Choice({"silu": "silu", "swish": "silu"})
RANK = Formula(lambda value: None if value == "auto" else value, lambda value: value, "auto, or a number")
"""How many numbers the steps are made of; auto is what ours takes where none is said."""
STEPS = (Field("ssm.dt_min", "time_step_min", 1e-3), Field("ssm.dt_max", "time_step_max", 0.1))
STREAM = (
    Field("d_model", "hidden_size"),
    Field("n_layers", "num_hidden_layers"),
    Field("init.std", "initializer_range", 0.1),
    Field("ssm.d_state", "state_size", 16),
    Field("ssm.d_conv", "conv_kernel", 4),
    Field("ssm.conv_bias", "use_conv_bias", True),
)
"""Fields that Mamba and Mamba-2 have alike."""
DRAWN = {
    **dict.fromkeys(("time_step_floor", "time_step_init_scheme", "time_step_scale", "rescale_prenorm_residual"), ANY),
    "residual_in_fp32": ANY,  # where the other numbers are of a lower precision
    # what the published files say beside it, and transformers passes over
    **dict.fromkeys(("d_model", "n_layer", "ssm_cfg", "fused_add_norm", "pad_vocab_size_multiple", "rms_norm"), ANY),
}
"""Neutral: how a model that isn't trained yet is drawn, and how it is computed."""
COMPUTED = dict.fromkeys(("use_mambapy", "use_associative_scan"), ANY)
"""Neutral: by what the selective scan is computed."""
AROUND = (
    Rule("backbone.embeddings", "embedding"),
    Rule(f"{_LAYER}.norm", "layers.{n}.mixer_norm"),
    Rule("backbone.norm_f", "final_norm"),
    Rule("lm_head", "head"),
)
"""The tensors around the mixers."""


def selective(theirs: str, *, norms: bool = False) -> tuple[Rule, ...]:
    """The rules of a selective layer that is called `theirs`, with the factors of its `norms` of dt, B and C."""
    ours = "layers.{n}.mixer"
    named = {"in_proj": "input", "dt_proj": "dt_b", "A_log": "a_log", "D": "d", "out_proj": "output"}
    named |= {f"{part}_layernorm": f"{part}_norm" for part in ("dt", "b", "c") if norms}
    return (
        *(Rule(f"{theirs}.{name}", f"{ours}.{own}") for name, own in named.items()),
        Rule(f"{theirs}.x_proj", (f"{ours}.dt_a", f"{ours}.b", f"{ours}.c")),
        Rule(f"{theirs}.conv1d", f"{ours}.conv", Depthwise()),
    )


def endless(facts: Facts) -> str:
    """What whoever brings in a model without any attention should know."""
    length = facts["deploy_length"]
    return (
        f"a state has no longest sequence: deploy_length={length} is no limit, and model.deploy_length=... sets another"
    )


class Mamba(Family):
    """transformers.MambaForCausalLM. Its config states no length: where a file does none either, that of the paper."""

    model_type = "mamba"
    architecture = "MambaForCausalLM"
    base = "backbone."
    fixed = {
        "pattern": ["ssm"],
        "ssm": {"name": "mamba"},
        "norm": {"name": "rmsnorm"},
        "block": {"name": "pre_norm"},
        "position": {"name": "none"},
    }
    fields = (
        *STREAM,
        Multiple("ssm.d_inner", "expand", 2, whole="intermediate_size"),
        Field("ssm.dt_rank", "time_step_rank", "auto", RANK),
        Field("ssm.bias", "use_bias", False),
        *STEPS,
        Field("norm.eps", "layer_norm_epsilon", 1e-5),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 2048),
        Field("tie_embeddings", "tie_word_embeddings", True),
    )
    neutral = {**DRAWN, **COMPUTED, "hidden_act": tuple(SILU.table)}
    rules = (*AROUND, *selective(f"{_LAYER}.mixer"))

    def note(self, facts: Facts, config: HFConfig) -> str:
        return endless(facts)
