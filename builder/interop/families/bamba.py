"""Bamba (Chu et al. 2024): Mamba-2 layers, a few attentions between them, and a dense ffn in every layer."""

from __future__ import annotations

from builder.interop.facts import Facts
from builder.interop.field import FLAG, Field
from builder.interop.hf_config import ANY, HFConfig
from builder.interop.hybrid import Hybrid, attending
from builder.interop.rope import Rope
from builder.interop.rule import Rule

from .llama import Llama
from .mamba import SILU
from .mamba2 import Heads, Limits, headed

_LAYER, _OURS = "model.layers.{n}", "layers.{n}"

AROUND = (
    Rule("model.embed_tokens", "embedding"),
    Rule("model.final_layernorm", "final_norm"),
    Rule("lm_head", "head"),
    Rule(f"{_LAYER}.input_layernorm", f"{_OURS}.mixer_norm"),
    Rule(f"{_LAYER}.pre_ff_layernorm", f"{_OURS}.ffn_norm"),
    *(Rule(f"{_LAYER}.self_attn.{name}_proj", f"{_OURS}.mixer.{name}") for name in "qkvo"),
    *(Rule(f"{_LAYER}.feed_forward.{name}_proj", f"{_OURS}.ffn.{name}") for name in ("gate", "up", "down")),
)
"""The tensors around the mixers with a state, as Bamba and Jamba have them."""
STREAM = (
    Field("d_model", "hidden_size"),
    Field("n_layers", "num_hidden_layers"),
    Field("attention.n_heads", "num_attention_heads", 32),
    Field("attention.n_kv_heads", "num_key_value_heads", 8, nullable=True),
    Field("attention.d_head", "head_dim", None),
    Field("attention.dropout", "attention_dropout", 0.0),
    Field("ssm.d_conv", "mamba_d_conv", 4),
    Field("ssm.conv_bias", "mamba_conv_bias", True),
    Field(("train_length", "deploy_length"), "max_position_embeddings", 262144),
    Field("tie_embeddings", "tie_word_embeddings", False),
)
"""Fields that Bamba and Jamba have alike."""
COUNTED = {"num_logits_to_keep": ANY}
"""Neutral: of how many tokens of a prompt the logits are computed."""


class Bamba(Hybrid):
    """transformers.BambaForCausalLM; by its activation go the convolutions too, so that it is silu."""

    model_type = "bamba"
    architecture = "BambaForCausalLM"
    base = Llama.base
    fixed = {**Llama.fixed, "ssm": {"name": "mamba2"}}
    fields = (
        *STREAM,
        Field("attention.bias", "attention_bias", False, FLAG),
        Heads("mamba_expand", "mamba_n_heads", "mamba_d_head", "auto"),
        Field("ssm.d_state", "mamba_d_state", 256),
        Field("ssm.n_groups", "mamba_n_groups", 1),
        Limits(),
        Field("ffn.d_ff", "intermediate_size", 14336),
        Field("ffn.activation", "hidden_act", "silu", SILU),
        Field("ffn.bias", "mlp_bias", False),
        Field(("norm.eps", "ssm.norm_eps"), "rms_norm_eps", 1e-5),
        Rope(fraction=0.5, fraction_names=()),  # their code puts 0.5 over one that stands beside the section
    )
    neutral = {
        **COUNTED,
        "mamba_proj_bias": (False,),  # as of Mamba-2's maps: theirs would add one to the steps' own
        "mamba_chunk_size": ANY,  # in what pieces it is computed
        "z_loss_coefficient": ANY,  # of the loss that a run here states itself
        "layers_block_type": ANY,  # computed anew from attn_layer_indices
    }
    rules = (*AROUND, *headed(f"{_LAYER}.mamba"))
    ignorable = Llama.ignorable

    def attends(self, config: HFConfig, n_layers: int) -> list[bool]:
        layers = config.get("attn_layer_indices", [])
        if not isinstance(layers, list) or not all(type(layer) is int for layer in layers):
            config.refuse("attn_layer_indices", "a list of numbers of layers", "[]")
            config.judge()
        return [layer in layers for layer in range(n_layers)]

    def read(self, config: HFConfig):
        section = super().read(config)
        attention = section.get("attention", {})
        head = attention.get("d_head") or section["d_model"] // attention.get("n_heads", 1)
        turned = int(head * section["position"]["fraction"])
        if attention and config.get("attn_rotary_emb", turned) != turned:
            config.refuse("attn_rotary_emb", f"transformers passes over it here and turns {turned}", f"{turned}")
        return section

    def write(self, facts: Facts):
        layers = [layer for layer, attends in enumerate(attending(facts)) if attends]
        return super().write(facts) | {"attn_layer_indices": layers}
