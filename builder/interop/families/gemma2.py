"""Gemma 2 (Gemma Team 2024): norms before and after each part, bounded scores and logits, every other layer local."""

from __future__ import annotations

from builder.interop.field import ACTIVATION, FLAG, Field, Formula
from builder.interop.hf_config import ANY, HFConfig
from builder.interop.rope import Rope
from builder.interop.windows import GLOBAL, LOCAL, Windowed

from .llama import SIZES, TENSORS, Llama, layer_norms


def _scale(n: float) -> float:
    """n^-0.5, which multiplies the scores."""
    if n <= 0:
        raise KeyError(n)
    return n**-0.5


def _scalar(scale: float) -> int:
    """The whole number n with scale = n^-0.5; raises ValueError where there is none."""
    n = round(scale**-2)
    if n < 1 or abs(n**-0.5 - scale) > 1e-9 * scale:
        raise ValueError(scale)
    return n


GEMMA = (
    *SIZES,
    Field("attention.n_kv_heads", "num_key_value_heads", 4),
    Field("attention.d_head", "head_dim", 256),
    Field("attention.bias", "attention_bias", False, FLAG),
    Field("attention.scale", "query_pre_attn_scalar", 256, Formula(_scale, _scalar, "a number above 0")),
    Field("ffn.activation", "hidden_activation", "gelu_pytorch_tanh", ACTIVATION),
    Field("tie_embeddings", "tie_word_embeddings", True),
)
"""Fields that Gemma 3 has too."""


class Gemma2(Windowed):
    """transformers.Gemma2ForCausalLM."""

    model_type = "gemma2"
    architecture = "Gemma2ForCausalLM"
    base = Llama.base
    fixed = {
        **Llama.fixed,
        "norm": {"name": "rmsnorm", "unit_offset": True},
        "block": {"name": "sandwich"},
        "embedding": {"scale": "sqrt_d_model"},
    }
    fields = (
        *GEMMA,
        Field("attention.softcap", "attn_logit_softcapping", 50.0, nullable=True),
        Field("head.softcap", "final_logit_softcapping", 30.0, nullable=True),
        Field("norm.eps", "rms_norm_eps", 1e-6),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 8192),
        Rope(fraction=None),
    )
    neutral = {
        "cache_implementation": ANY,  # how keys are kept
        "hidden_act": ("gelu_pytorch_tanh",),  # published beside hidden_activation, and not read
        "use_bidirectional_attention": (False,),
    }
    rules = (
        *TENSORS,
        *layer_norms(mixer_norm="input", mixer_out_norm="post_attention"),
        *layer_norms(ffn_norm="pre_feedforward", ffn_out_norm="post_feedforward"),
    )
    ignorable = Llama.ignorable

    def unstated(self, config: HFConfig, n_layers: int, window: int | None) -> list[str]:
        return [GLOBAL if layer % 2 else LOCAL for layer in range(n_layers)]
