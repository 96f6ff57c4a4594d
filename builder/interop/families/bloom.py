"""BLOOM (BigScience Workshop 2022): ALiBi, a norm on the embedding, q, k and v fused head by head."""

from __future__ import annotations

from builder.interop.facts import Facts
from builder.interop.family import Family
from builder.interop.field import Field
from builder.interop.form import Grouped
from builder.interop.hf_config import ANY
from builder.interop.rule import Rule

_LAYER, _OURS = "transformer.h.{n}", "layers.{n}"


class Bloom(Family):
    """transformers.BloomForCausalLM."""

    model_type = "bloom"
    architecture = "BloomForCausalLM"
    base = "transformer."
    widening = 4
    fixed = {
        "attention": {"name": "gqa", "bias": True},
        "ffn": {"name": "mlp", "bias": True, "activation": "gelu_tanh"},
        "norm": {"name": "layernorm"},
        "block": {"name": "pre_norm"},
        "position": {"name": "alibi"},
        "embedding.norm": {"name": "layernorm"},
    }
    fields = (
        Field("d_model", ("hidden_size", "n_embed")),
        Field("n_layers", ("n_layer", "num_hidden_layers")),
        Field("attention.n_heads", ("n_head", "num_attention_heads")),
        Field("attention.dropout", "attention_dropout", 0.0),
        Field(("norm.eps", "embedding.norm.eps"), "layer_norm_epsilon", 1e-5),
        Field("block.dropout", "hidden_dropout", 0.0),
        Field(("train_length", "deploy_length"), "seq_length", 2048),  # their code needs none, but files state it
        Field("tie_embeddings", "tie_word_embeddings", True),
    )
    neutral = {
        "apply_residual_connection_post_layernorm": (False,),
        "slow_but_exact": (False,),
        "pretraining_tp": ANY,  # counts when slow_but_exact is set
        # of the code that trained it
        **dict.fromkeys(("attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion"), ANY),
        **dict.fromkeys(("offset_alibi", "skip_bias_add", "skip_bias_add_qkv", "unk_token_id"), ANY),
    }
    rules = (
        Rule("transformer.word_embeddings", "embedding"),
        Rule("transformer.word_embeddings_layernorm", "embedding.norm"),
        Rule(f"{_LAYER}.self_attention.dense", f"{_OURS}.mixer.o"),
        Rule(f"{_LAYER}.mlp.dense_h_to_4h", f"{_OURS}.ffn.up"),
        Rule(f"{_LAYER}.mlp.dense_4h_to_h", f"{_OURS}.ffn.down"),
        Rule(f"{_LAYER}.input_layernorm", f"{_OURS}.mixer_norm"),
        Rule(f"{_LAYER}.post_attention_layernorm", f"{_OURS}.ffn_norm"),
        Rule("transformer.ln_f", "final_norm"),
        Rule("lm_head", "head"),
    )

    def tensors(self, facts: Facts):
        fused = tuple(f"{_OURS}.mixer.{name}" for name in "qkv")
        return (
            *self.rules,
            Rule(f"{_LAYER}.self_attention.query_key_value", fused, Grouped(facts["attention.d_head"])),
        )
