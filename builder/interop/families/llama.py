"""Llama 1 to 3 (Touvron et al. 2023; Grattafiori et al. 2024), and whatever was published in its clothes."""

from __future__ import annotations

from builder.interop.family import Family
from builder.interop.field import ACTIVATION, FLAG, Field
from builder.interop.hf_config import ANY
from builder.interop.rope import Rope
from builder.interop.rule import Rule

_LAYER, _OURS = "model.layers.{n}", "layers.{n}"

STREAM = (
    Field("d_model", "hidden_size"),
    Field("n_layers", "num_hidden_layers"),
    Field("attention.n_heads", "num_attention_heads"),
    Field("attention.dropout", "attention_dropout", 0.0),
)
"""Fields that all descendants of Llama have alike."""
SIZES = (*STREAM, Field("ffn.d_ff", "intermediate_size"))
"""Fields that those with a dense ffn have alike."""
READING = (
    Field("attention.n_kv_heads", "num_key_value_heads", None),
    Field("attention.d_head", "head_dim", None),
    Field("attention.bias", "attention_bias", False, FLAG),
    Field("ffn.activation", "hidden_act", "silu", ACTIVATION),
)
"""What a layer of attention and a gated ffn says beside its sizes."""
AROUND = (
    Rule("model.embed_tokens", "embedding"),
    *(Rule(f"{_LAYER}.mlp.{name}_proj", f"{_OURS}.ffn.{name}") for name in ("gate", "up", "down")),
    Rule("model.norm", "final_norm"),
    Rule("lm_head", "head"),
)
"""The tensors around the attentions, but for the norms of a layer."""
TENSORS = (
    *AROUND,
    *(
        Rule(f"{_LAYER}.self_attn.{name}", f"{_OURS}.mixer.{name.removesuffix('_proj')}")
        for name in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")
    ),
)
"""The tensors that all descendants of Llama have alike: all but the norms of a layer."""


def layer_norms(**names: str) -> tuple[Rule, ...]:
    """The rules of the norms of a layer, {ours: theirs}."""
    return tuple(Rule(f"{_LAYER}.{theirs}_layernorm", f"{_OURS}.{ours}") for ours, theirs in names.items())


class Llama(Family):
    """transformers.LlamaForCausalLM."""

    model_type = "llama"
    architecture = "LlamaForCausalLM"
    base = "model."
    fixed = {
        "attention": {"name": "gqa"},
        "ffn": {"name": "glu"},
        "norm": {"name": "rmsnorm"},
        "block": {"name": "pre_norm"},
    }
    fields = (
        *SIZES,
        *READING,
        Field("ffn.bias", "mlp_bias", False),
        Field("norm.eps", "rms_norm_eps", 1e-6),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 2048),
        Field("tie_embeddings", "tie_word_embeddings", False),
        Rope(fraction=None),
    )
    neutral = {"pretraining_tp": ANY}  # in how many pieces a product is computed
    rules = (*TENSORS, *layer_norms(mixer_norm="input", ffn_norm="post_attention"))
    ignorable = (r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",)
