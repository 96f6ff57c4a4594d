"""BART (Lewis et al. 2019): an encoder-decoder with norms on the stream and learned positions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from builder.interop.facts import Facts
from builder.interop.field import ACTIVATION, Choice, Field
from builder.interop.form import Row
from builder.interop.hf_config import ANY
from builder.interop.rule import Rule
from builder.interop.towers import BOTH, TwoTowers
from builder.interop.weights import Weights

_BIAS = "final_logits_bias"
_OUT = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "o"}
_DROPPED = ("attention.dropout", "cross.dropout")
SIZES = (
    Field("d_model", ("d_model", "hidden_size")),
    Field("n_layers", "decoder_layers"),
    Field("encoder.n_layers", ("encoder_layers", "num_hidden_layers")),
    Field(("attention.n_heads", "cross.n_heads"), "decoder_attention_heads"),
    Field("encoder.attention.n_heads", ("encoder_attention_heads", "num_attention_heads")),
    Field("ffn.d_ff", "decoder_ffn_dim"),
    Field("encoder.ffn.d_ff", "encoder_ffn_dim"),
    Field("ffn.activation", "activation_function", "gelu", ACTIVATION),
    Field(("block.dropout", "embedding.dropout"), "dropout", 0.1),
    Field(_DROPPED, "attention_dropout", 0.0),
    Field("embedding.scale", "scale_embedding", False, Choice({False: None, True: "sqrt_d_model"})),
)
"""Fields that Marian has too."""
FIXED = {
    "attention": {"name": "gqa", "bias": True},
    "cross": {"name": "cross", "bias": True},
    "ffn": {"name": "mlp", "bias": True},
    "norm": {"name": "layernorm", "eps": 1e-5},
    "block": {"name": "post_norm"},
    "tie_embeddings": True,
}
NEUTRAL = {
    **BOTH,
    "tie_word_embeddings": (True,),
    "normalize_before": (False,),
    "add_final_layer_norm": (False,),
    "_num_labels": ANY,
    **dict.fromkeys(("activation_dropout", "encoder_layerdrop", "decoder_layerdrop", "classif_dropout"), ANY),
    # of generation
    **dict.fromkeys(("forced_bos_token_id", "forced_eos_token_id", "force_bos_token_to_be_generated"), ANY),
    **dict.fromkeys(("bad_words_ids", "early_stopping", "output_past", "gradient_checkpointing"), ANY),
}


def layers(tower: str, ours: str) -> tuple[Rule, ...]:
    """The tensors of the layers of a tower."""
    theirs, own = f"model.{tower}.layers.{{n}}", f"{ours}layers.{{n}}"
    parts = {"self_attn": "mixer"} | ({} if ours else {"encoder_attn": "cross"})
    return (
        *(Rule(f"{theirs}.{a}.{b}", f"{own}.{part}.{name}") for a, part in parts.items() for b, name in _OUT.items()),
        *(Rule(f"{theirs}.{part}_layer_norm", f"{own}.{name}_norm") for part, name in parts.items()),
        Rule(f"{theirs}.fc1", f"{own}.ffn.up"),
        Rule(f"{theirs}.fc2", f"{own}.ffn.down"),
        Rule(f"{theirs}.final_layer_norm", f"{own}.ffn_norm"),
    )


AROUND = (
    Rule("model.shared", "embedding"),
    Rule("model.encoder.embed_tokens.weight", "encoder.embedding.weight"),
    Rule("lm_head.weight", "head.weight"),
    Rule(_BIAS, "head.bias", Row()),
    *layers("encoder", "encoder."),
    *layers("decoder", ""),
)


class Bart(TwoTowers):
    """transformers.BartForConditionalGeneration; its bias on the logits, which it doesn't train, is ours where it isn't
    zero."""

    model_type = "bart"
    architecture = "BartForConditionalGeneration"
    base = "model."
    everywhere = (Field("vocab_size", "vocab_size"), Field("init.std", "init_std", 0.02))
    fixed = {
        **FIXED,
        "position": {"name": "learned", "offset": 2},
        "embedding.norm": {"name": "layernorm", "eps": 1e-5},
    }
    fields = (
        *SIZES,
        Field("head.bias", "beside.bias", False),
        Field(("train_length", "deploy_length", "position.length"), "max_position_embeddings", 1024),
    )
    neutral = {
        **NEUTRAL,
        "normalize_embedding": (True,),
        "static_position_embeddings": (False,),
        "add_bias_logits": (False,),
        "extra_pos_embeddings": (2,),
    }
    copies = {"model.decoder.embed_tokens.weight": "embedding.weight"}
    ids = {"decoder_start_token_id": None}
    rules = (
        *AROUND,
        *(
            rule
            for tower, ours in (("encoder", "encoder."), ("decoder", ""))
            for rule in (
                Rule(f"model.{tower}.embed_positions.weight", f"{ours}positions.model.weight"),
                Rule(f"model.{tower}.layernorm_embedding", f"{ours}embedding.norm"),
            )
        ),
    )
    ignorable = (_BIAS,)  # looked at before, in `beside`

    def beside(self, files: Weights) -> dict[str, Any]:
        return {"bias": _BIAS in files.shapes and bool(files[_BIAS].any())}

    def write(self, facts: Facts) -> dict[str, Any]:
        return super().write(facts) | dict.fromkeys(("forced_eos_token_id",)) | {"beside": {"bias": facts["head.bias"]}}

    def idle(self, facts: Facts) -> dict[str, Tensor]:
        return {} if facts["head.bias"] else {_BIAS: torch.zeros(1, facts["vocab_size"])}
