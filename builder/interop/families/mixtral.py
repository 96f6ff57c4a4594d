"""Mixtral (Jiang et al. 2024): Mistral with a mixture of experts in every layer."""

from __future__ import annotations

from builder.interop.facts import Facts
from builder.interop.field import ACTIVATION, Field
from builder.interop.hf_config import HFConfig
from builder.interop.mixture import ROUTED, Mixture, balanced, experts
from builder.interop.rope import Rope
from builder.interop.rule import Rule

from .llama import STREAM, Llama


class Mixtral(Mixture):
    """transformers.MixtralForCausalLM."""

    model_type = "mixtral"
    architecture = "MixtralForCausalLM"
    base = Llama.base
    fixed = {**Llama.fixed, "moe": {"name": "moe", "expert": {"name": "glu"}, "router": {"name": "topk"}}}
    fields = (
        *STREAM,
        Field("attention.n_kv_heads", "num_key_value_heads", 8, nullable=True),
        Field("attention.d_head", "head_dim", None),
        Field("attention.window", "sliding_window", None),
        Field("moe.n_experts", ("num_local_experts", "num_experts"), 8),
        Field("moe.top_k", "num_experts_per_tok", 2),
        Field("moe.expert.d_ff", "intermediate_size"),
        Field("moe.expert.activation", "hidden_act", "silu", ACTIVATION),
        Field("moe.router.jitter", "router_jitter_noise", 0.0),
        balanced(0.001),
        Field("norm.eps", "rms_norm_eps", 1e-5),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 131072),
        Field("tie_embeddings", "tie_word_embeddings", False),
        Rope(theta=1e6, fraction=None),
    )
    neutral = ROUTED
    rules = (
        *Llama.rules,
        Rule("model.layers.{n}.block_sparse_moe.gate", "layers.{n}.ffn.router"),
        *experts("block_sparse_moe", gate="w1", up="w3", down="w2"),
    )
    ignorable = Llama.ignorable

    def write(self, facts: Facts):
        fields = super().write(facts)
        fields.pop("router_jitter_noise", None)  # there it reaches the experts too, so ours is left out
        return fields

    def note(self, facts: Facts, config: HFConfig):
        if not facts.get("moe.router.jitter"):
            return ""
        return (
            "in training, transformers' experts read the tokens with the router's jitter too; here only the router does"
        )
