"""GPT-2 (Radford et al. 2019): learned positions, LayerNorm, a tanh GELU, q, k and v in one transposed matrix."""

from __future__ import annotations

from builder.interop.family import Family
from builder.interop.field import ACTIVATION, Field
from builder.interop.form import Conv1D
from builder.interop.hf_config import ANY
from builder.interop.rule import Rule

_LAYER, _OURS = "transformer.h.{n}", "layers.{n}"


SIZES = (
    Field("d_model", "n_embd"),
    Field("n_layers", "n_layer"),
    Field("attention.n_heads", "n_head"),
    Field("ffn.d_ff", "n_inner", None),
    Field("ffn.activation", "activation_function", "gelu_new", ACTIVATION),
    Field("norm.eps", "layer_norm_epsilon", 1e-5),
)
"""Fields that GPT-J has too."""
SUMMARY = {f"summary_{name}": ANY for name in ("type", "use_proj", "activation", "proj_to_labels", "first_dropout")}
"""Of a head for classification; GPT-J has them too."""


class GPT2(Family):
    """transformers.GPT2LMHeadModel."""

    model_type = "gpt2"
    architecture = "GPT2LMHeadModel"
    base = "transformer."
    widening = 4
    fixed = {
        "attention": {"name": "gqa", "bias": True},
        "ffn": {"name": "mlp", "bias": True},
        "norm": {"name": "layernorm"},
        "block": {"name": "pre_norm"},
        "position": {"name": "learned"},
    }
    fields = (
        *SIZES,
        Field(("train_length", "deploy_length", "position.length"), ("n_positions", "n_ctx")),
        Field("block.dropout", "resid_pdrop", 0.1),
        Field("embedding.dropout", "embd_pdrop", 0.1),
        Field("attention.dropout", "attn_pdrop", 0.1),
        Field("tie_embeddings", "tie_word_embeddings", True),
    )
    neutral = {
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "reorder_and_upcast_attn": ANY,  # the same product, in float32
        **SUMMARY,
    }
    rules = (
        Rule("transformer.wte", "embedding"),
        Rule("transformer.wpe.weight", "positions.model.weight"),
        Rule(f"{_LAYER}.ln_1", f"{_OURS}.mixer_norm"),
        Rule(f"{_LAYER}.attn.c_attn", tuple(f"{_OURS}.mixer.{name}" for name in "qkv"), Conv1D()),
        Rule(f"{_LAYER}.attn.c_proj", f"{_OURS}.mixer.o", Conv1D()),
        Rule(f"{_LAYER}.ln_2", f"{_OURS}.ffn_norm"),
        Rule(f"{_LAYER}.mlp.c_fc", f"{_OURS}.ffn.up", Conv1D()),
        Rule(f"{_LAYER}.mlp.c_proj", f"{_OURS}.ffn.down", Conv1D()),
        Rule("transformer.ln_f", "final_norm"),
        Rule("lm_head", "head"),
    )
    ignorable = (r"transformer\.h\.\d+\.attn\.(bias|masked_bias)",)
