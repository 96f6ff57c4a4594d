"""StarCoder2 (Lozhkov et al. 2024): LayerNorm, biases, grouped queries, a window or none."""

from __future__ import annotations

from builder.interop.family import Family
from builder.interop.field import ACTIVATION, Field
from builder.interop.hf_config import ANY
from builder.interop.rope import Rope
from builder.interop.rule import Rule

_LAYER, _OURS = "model.layers.{n}", "layers.{n}"


class Starcoder2(Family):
    """transformers.Starcoder2ForCausalLM."""

    model_type = "starcoder2"
    architecture = "Starcoder2ForCausalLM"
    base = "model."
    fixed = {
        "attention": {"name": "gqa"},
        "ffn": {"name": "mlp"},
        "norm": {"name": "layernorm"},
        "block": {"name": "pre_norm"},
    }
    fields = (
        Field("d_model", "hidden_size"),
        Field("n_layers", "num_hidden_layers"),
        Field("attention.n_heads", "num_attention_heads"),
        Field("attention.n_kv_heads", "num_key_value_heads", 2),
        Field("attention.d_head", "head_dim", None),
        Field("attention.window", "sliding_window", None),
        Field("attention.dropout", "attention_dropout", 0.0),
        Field("ffn.d_ff", "intermediate_size"),
        Field("ffn.activation", "hidden_act", "gelu_pytorch_tanh", ACTIVATION),
        Field(("attention.bias", "ffn.bias"), "use_bias", True),
        Field("norm.eps", "norm_epsilon", 1e-5),
        Field("block.dropout", "residual_dropout", 0.0),
        Field("embedding.dropout", "embedding_dropout", 0.0),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 4096),
        Field("tie_embeddings", "tie_word_embeddings", True),
        Rope(fraction=None),
    )
    neutral = {
        "mlp_type": ("default",),
        "norm_type": ("layer_norm",),
        "scale_attn_weights": (True,),
        # nothing reads them: hidden_act and norm_epsilon do
        "activation_function": ANY,
        "layer_norm_epsilon": ANY,
        # the same product, in float32
        "attention_softmax_in_fp32": ANY,
        "scale_attention_softmax_in_fp32": ANY,
    }
    rules = (
        Rule("model.embed_tokens", "embedding"),
        *(Rule(f"{_LAYER}.self_attn.{name}_proj", f"{_OURS}.mixer.{name}") for name in "qkvo"),
        Rule(f"{_LAYER}.mlp.c_fc", f"{_OURS}.ffn.up"),
        Rule(f"{_LAYER}.mlp.c_proj", f"{_OURS}.ffn.down"),
        Rule(f"{_LAYER}.input_layernorm", f"{_OURS}.mixer_norm"),
        Rule(f"{_LAYER}.post_attention_layernorm", f"{_OURS}.ffn_norm"),
        Rule("model.norm", "final_norm"),
        Rule("lm_head", "head"),
    )
    ignorable = (r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",)
