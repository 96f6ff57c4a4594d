"""OLMo 2 (OLMo et al. 2024): norms after each part and none before, and on queries and keys over all heads at once."""

from __future__ import annotations

from builder.interop.family import Family
from builder.interop.field import Field
from builder.interop.rope import Rope

from .llama import READING, SIZES, TENSORS, Llama, layer_norms


class Olmo2(Family):
    """transformers.Olmo2ForCausalLM."""

    model_type = "olmo2"
    architecture = "Olmo2ForCausalLM"
    base = Llama.base
    fixed = {
        **Llama.fixed,
        "attention": {"name": "gqa", "qk_norm": {"name": "rmsnorm"}, "qk_norm_over": "projection"},
        "block": {"name": "sublayer_norm"},
    }
    fields = (
        *SIZES,
        *READING,
        Field(("norm.eps", "attention.qk_norm.eps"), "rms_norm_eps", 1e-5),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 2048),
        Field("tie_embeddings", "tie_word_embeddings", False),
        Rope(fraction=None),
    )
    rules = (*TENSORS, *layer_norms(mixer_norm="post_attention", ffn_norm="post_feedforward"))
    ignorable = Llama.ignorable
