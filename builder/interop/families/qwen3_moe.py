"""Qwen 3 with experts (Yang et al. 2025): Qwen 3's attention, and a mixture of experts in most layers or all."""

from __future__ import annotations

from builder.interop.facts import Facts
from builder.interop.field import ACTIVATION, FLAG, Field
from builder.interop.hf_config import ANY, HFConfig
from builder.interop.mixture import RENORMALISED, ROUTED, Stepped, balanced, experts
from builder.interop.rope import Rope
from builder.interop.rule import Rule

from .llama import STREAM, Llama


class Qwen3Moe(Stepped):
    """transformers.Qwen3MoeForCausalLM."""

    model_type = "qwen3_moe"
    architecture = "Qwen3MoeForCausalLM"
    base = Llama.base
    fixed = {
        **Llama.fixed,
        "attention": {"name": "gqa", "qk_norm": {"name": "rmsnorm"}},
        "moe": {"name": "moe", "expert": {"name": "glu"}, "router": {"name": "topk"}},
    }
    fields = (
        *STREAM,
        Field("ffn.d_ff", "intermediate_size", 6144),
        Field("attention.n_kv_heads", "num_key_value_heads", 4),
        Field("attention.d_head", "head_dim", None),
        Field("attention.bias", "attention_bias", False, FLAG),
        Field("moe.n_experts", ("num_experts", "num_local_experts"), 128),
        Field("moe.top_k", "num_experts_per_tok", 8),
        Field("moe.expert.d_ff", "moe_intermediate_size", 768),
        Field(("ffn.activation", "moe.expert.activation"), "hidden_act", "silu", ACTIVATION),
        Field("moe.router.weights", "norm_topk_prob", False, RENORMALISED),
        balanced(0.001),
        Field(("norm.eps", "attention.qk_norm.eps"), "rms_norm_eps", 1e-6),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 32768),
        Field("tie_embeddings", "tie_word_embeddings", False),
        Rope(fraction=None),
    )
    neutral = {**ROUTED, "max_window_layers": ANY}  # files state it, and nothing reads it
    rules = (*Llama.rules, Rule("model.layers.{n}.mlp.gate", "layers.{n}.ffn.router"), *experts())
    ignorable = Llama.ignorable

    def read(self, config: HFConfig):
        """All layers have the window, or none."""
        section = super().read(config)
        window = config.get("sliding_window", None if config.states("sliding_window") else 4096)
        if config.get("use_sliding_window", False) and window is not None:
            section["attention"]["window"] = window
        return section

    def write(self, facts: Facts):
        window = facts["attention.window"]
        return super().write(facts) | {"use_sliding_window": window is not None, "sliding_window": window}
