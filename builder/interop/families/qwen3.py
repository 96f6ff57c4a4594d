"""Qwen 3 (Yang et al. 2025): Qwen 2 with norms on queries and keys, and biases on all four projections or none."""

from __future__ import annotations

from builder.interop.field import ACTIVATION, FLAG, Field
from builder.interop.rope import Rope

from .llama import SIZES, Llama
from .qwen2 import Qwen2


class Qwen3(Qwen2):
    """transformers.Qwen3ForCausalLM."""

    model_type = "qwen3"
    architecture = "Qwen3ForCausalLM"
    fixed = {**Llama.fixed, "attention": {"name": "gqa", "qk_norm": {"name": "rmsnorm"}}}
    fields = (
        *SIZES,
        Field("attention.n_kv_heads", "num_key_value_heads", 32, nullable=True),
        Field("attention.d_head", "head_dim", 128),
        Field("attention.bias", "attention_bias", False, FLAG),
        Field("ffn.activation", "hidden_act", "silu", ACTIVATION),
        Field(("norm.eps", "attention.qk_norm.eps"), "rms_norm_eps", 1e-6),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 32768),
        Field("tie_embeddings", "tie_word_embeddings", False),
        Rope(fraction=None),
    )
