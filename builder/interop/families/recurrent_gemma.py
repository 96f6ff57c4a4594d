"""RecurrentGemma (Botev et al. 2024): Griffin's recurrence in two layers of three, a local attention in the third."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from builder.interop.facts import Facts
from builder.interop.field import ACTIVATION, Choice, Field, Formula
from builder.interop.form import Depthwise, Woven
from builder.interop.hf_config import ANY, HFConfig
from builder.interop.hybrid import Hybrid, attending
from builder.interop.rope import Rope
from builder.interop.rule import Rule
from builder.interop.windows import tile

from .llama import STREAM, Llama

_LAYER, _OURS = "model.layers.{n}", "layers.{n}"
_BLOCK, _MIXER = f"{_LAYER}.temporal_block", f"{_OURS}.mixer"
_BRANCHES = {"x": "input", "y": "gate", "out": "output"}
_GATES = {
    f"{theirs}_gate_{end}": f"{ours}_gate.{end}"
    for theirs, ours in {"input": "input", "recurrent": "decay"}.items()
    for end in ("weight", "bias")
}
_KINDS = {"recurrent": False, "attention": True}
_BOTH = Formula(lambda both: both // 2, lambda d_ff: 2 * d_ff)
"""The widths of gate and up together."""


class RecurrentGemma(Hybrid):
    """transformers.RecurrentGemmaForCausalLM; it rounds the factor of the embedding to bfloat16: 50.5 for 2560."""

    model_type = "recurrent_gemma"
    architecture = "RecurrentGemmaForCausalLM"
    base = Llama.base
    fixed = {
        "attention": {"name": "gqa"},
        "ssm": {"name": "rglru"},
        "ffn": {"name": "glu", "bias": True},
        "norm": {"name": "rmsnorm", "unit_offset": True},
        "block": {"name": "pre_norm"},
        **dict.fromkeys(("train_length", "deploy_length"), 8192),  # no field says it (Botev et al. 2024, section 2)
    }
    fields = (
        *STREAM,
        Field("ssm.n_blocks", "num_attention_heads"),
        Field("attention.n_kv_heads", "num_key_value_heads", None),
        Field("attention.d_head", "head_dim", None),
        Field("attention.bias", "attention_bias", False, Choice({False: ["o"], True: True})),
        Field("attention.window", "attention_window_size", 2048),
        Field("ssm.d_inner", "lru_width", None),
        Field("ssm.d_conv", "conv1d_width", 4),
        Field("ffn.d_ff", "intermediate_size", 7680, _BOTH),
        Field(("ffn.activation", "ssm.activation"), "hidden_activation", "gelu_pytorch_tanh", ACTIVATION),
        Field("norm.eps", "rms_norm_eps", 1e-6),
        Field("head.softcap", "logits_soft_cap", 30.0),
        Field("tie_embeddings", "tie_word_embeddings", True),
        Rope(fraction=0.5),
    )
    neutral = {
        "embeddings_scale_by_sqrt_dim": (True,),
        **dict.fromkeys(("w_init_variance_scale", "final_w_init_variance_scale"), ANY),
    }
    rules = (
        Rule("model.embed_tokens", "embedding"),
        *(Rule(f"{_BLOCK}.{name}_proj", f"{_MIXER}.{name}") for name in "qkvo"),
        *(Rule(f"{_BLOCK}.linear_{theirs}", f"{_MIXER}.{ours}") for theirs, ours in _BRANCHES.items()),
        Rule(f"{_BLOCK}.conv_1d", f"{_MIXER}.conv", Depthwise()),
        *(Rule(f"{_BLOCK}.rg_lru.{theirs}", f"{_MIXER}.{ours}", Woven()) for theirs, ours in _GATES.items()),
        Rule(f"{_BLOCK}.rg_lru.recurrent_param", f"{_MIXER}.decay"),
        *(Rule(f"{_LAYER}.mlp_block.{name}_proj", f"{_OURS}.ffn.{name}") for name in ("gate", "up", "down")),
        Rule(f"{_LAYER}.temporal_pre_norm", f"{_OURS}.mixer_norm"),
        Rule(f"{_LAYER}.channel_pre_norm", f"{_OURS}.ffn_norm"),
        Rule("model.final_norm", "final_norm"),
        Rule("lm_head", "head"),
    )

    def attends(self, config: HFConfig, n_layers: int) -> Sequence[bool]:
        kinds = config.get("block_types", ["recurrent", "recurrent", "attention"])
        if not (isinstance(kinds, list) and kinds and all(kind in _KINDS for kind in kinds)):
            config.refuse("block_types", f"a list of {' or '.join(_KINDS)}, which is tiled", "a model of these two")
            config.judge()
        if config.get("_block_types", kinds) != kinds:  # as published files spell it
            config.refuse("_block_types", f"transformers passes over it here and takes {kinds}", f"{kinds}")
        return [_KINDS[kinds[layer % len(kinds)]] for layer in range(n_layers)]

    def read(self, config: HFConfig) -> dict[str, Any]:
        section = super().read(config)
        factor = torch.tensor(section["d_model"] ** 0.5, dtype=torch.bfloat16)
        return section | {"embedding": {"scale": factor.item()}}

    def write(self, facts: Facts) -> dict[str, Any]:
        names = {attends: kind for kind, attends in _KINDS.items()}
        return super().write(facts) | {"block_types": list(tile([names[kind] for kind in attending(facts)]))}
