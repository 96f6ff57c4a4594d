"""MPT (MosaicML 2023): ALiBi, no biases at all, q, k and v one below the other.

transformers passes over several fields that MosaicML's own code honours, such as alibi_bias_max and learned_pos_emb
without alibi. They are read at the values at which both compute the same, and refused at others.
"""

from __future__ import annotations

from builder.interop.family import Family
from builder.interop.field import Field, Formula
from builder.interop.hf_config import ANY, NEUTRAL
from builder.interop.rule import Rule

_LAYER, _OURS = "transformer.blocks.{n}", "layers.{n}"
_NONE_AS_INT = Formula(float, {0.0: 0}.__getitem__)  # transformers 5 takes no other number than a whole one


class MPT(Family):
    """transformers.MptForCausalLM."""

    model_type = "mpt"
    architecture = "MptForCausalLM"
    base = "transformer."
    widening = 4
    fixed = {
        "attention": {"name": "gqa"},
        "ffn": {"name": "mlp", "bias": False, "activation": "gelu"},
        "norm": {"name": "layernorm", "bias": False},
        "block": {"name": "pre_norm"},
        "position": {"name": "alibi"},
    }
    fields = (
        Field("d_model", ("d_model", "hidden_size")),
        Field("n_layers", ("n_layers", "num_hidden_layers")),
        Field("attention.n_heads", ("n_heads", "num_attention_heads")),
        Field("attention.scale", "attn_config.softmax_scale", None),
        Field("attention.dropout", "attn_config.attn_pdrop", 0.0, _NONE_AS_INT),
        Field("block.dropout", "resid_pdrop", 0.0),
        Field("embedding.dropout", "emb_pdrop", 0.0),
        Field("norm.eps", "layer_norm_epsilon", 1e-5),
        Field(("train_length", "deploy_length"), "max_seq_len", 2048),
        Field("tie_embeddings", "tie_word_embeddings", True),
    )
    neutral = {
        **{f"attn_config.{name}": values for name, values in NEUTRAL.items()},  # it is saved as a config of its own
        "attn_config.alibi": (True,),
        "attn_config.alibi_bias_max": (8,),
        "attn_config.attn_type": ("multihead_attention",),
        "attn_config.attn_uses_sequence_id": (False,),
        "attn_config.prefix_lm": (False,),
        "attn_config.qk_ln": (False,),
        "expansion_ratio": (4,),
        "no_bias": (True,),
        "norm_type": ("low_precision_layernorm", "layernorm"),
        "learned_pos_emb": ANY,  # there are none beside alibi
        "embedding_fraction": ANY,  # of the embedding's gradient
        "attn_config.attn_impl": ANY,
        **dict.fromkeys(("init_config", "init_device", "tokenizer_name", "verbose"), ANY),
    }
    rules = (
        Rule("transformer.wte", "embedding"),
        Rule(f"{_LAYER}.attn.Wqkv", tuple(f"{_OURS}.mixer.{name}" for name in "qkv")),
        Rule(f"{_LAYER}.attn.out_proj", f"{_OURS}.mixer.o"),
        Rule(f"{_LAYER}.ffn.up_proj", f"{_OURS}.ffn.up"),
        Rule(f"{_LAYER}.ffn.down_proj", f"{_OURS}.ffn.down"),
        Rule(f"{_LAYER}.norm_1", f"{_OURS}.mixer_norm"),
        Rule(f"{_LAYER}.norm_2", f"{_OURS}.ffn_norm"),
        Rule("transformer.norm_f", "final_norm"),
        Rule("lm_head", "head"),
    )
