"""OLMoE (Muennighoff et al. 2024): small experts in every layer, norms on queries and keys over all heads at once."""

from __future__ import annotations

from builder.interop.field import ACTIVATION, FLAG, Field
from builder.interop.mixture import RENORMALISED, ROUTED, Mixture, balanced, experts
from builder.interop.rope import Rope
from builder.interop.rule import Rule

from .llama import STREAM, Llama


class Olmoe(Mixture):
    """transformers.OlmoeForCausalLM."""

    model_type = "olmoe"
    architecture = "OlmoeForCausalLM"
    base = Llama.base
    fixed = {
        **Llama.fixed,
        "attention": {"name": "gqa", "qk_norm": {"name": "rmsnorm"}, "qk_norm_over": "projection"},
        "moe": {"name": "moe", "expert": {"name": "glu"}, "router": {"name": "topk"}},
    }
    fields = (
        *STREAM,
        Field("attention.n_kv_heads", "num_key_value_heads", None),
        Field("attention.bias", "attention_bias", False, FLAG),
        Field("moe.n_experts", ("num_experts", "num_local_experts"), 64),
        Field("moe.top_k", "num_experts_per_tok", 8),
        Field("moe.expert.d_ff", "intermediate_size", 2048),
        Field("moe.expert.activation", "hidden_act", "silu", ACTIVATION),
        Field("moe.router.weights", "norm_topk_prob", False, RENORMALISED),
        balanced(0.01),
        Field(("norm.eps", "attention.qk_norm.eps"), "rms_norm_eps", 1e-5),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 4096),
        Field("tie_embeddings", "tie_word_embeddings", False),
        Rope(fraction=None),
    )
    neutral = ROUTED
    rules = (*Llama.rules, Rule("model.layers.{n}.mlp.gate", "layers.{n}.ffn.router"), *experts())
    ignorable = Llama.ignorable
