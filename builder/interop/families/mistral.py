"""Mistral 7B and its successors (Jiang et al. 2023): Llama without biases, every layer with the same window or none."""

from __future__ import annotations

from builder.interop.family import Family
from builder.interop.field import ACTIVATION, Field
from builder.interop.rope import Rope

from .llama import SIZES, Llama


class Mistral(Family):
    """transformers.MistralForCausalLM."""

    model_type = "mistral"
    architecture = "MistralForCausalLM"
    base = Llama.base
    fixed = Llama.fixed
    fields = (
        *SIZES,
        Field("attention.n_kv_heads", "num_key_value_heads", 8, nullable=True),
        Field("attention.d_head", "head_dim", None),
        Field("attention.window", "sliding_window", 4096, nullable=True),
        Field("ffn.activation", "hidden_act", "silu", ACTIVATION),
        Field("norm.eps", "rms_norm_eps", 1e-6),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 131072),
        Field("tie_embeddings", "tie_word_embeddings", False),
        Rope(fraction=None),
    )
    rules = Llama.rules
    ignorable = Llama.ignorable
