"""Phi-1, Phi-1.5 and Phi-2 (Gunasekar et al. 2023; Li et al. 2023): GPT-J's block with biases and partial rotary."""

from __future__ import annotations

from builder.interop.facts import Facts
from builder.interop.family import Family
from builder.interop.field import ACTIVATION, Field
from builder.interop.hf_config import HFConfig
from builder.interop.rope import Rope
from builder.interop.rule import Rule

_LAYER, _OURS = "model.layers.{n}", "layers.{n}"


class Phi(Family):
    """transformers.PhiForCausalLM."""

    model_type = "phi"
    architecture = "PhiForCausalLM"
    base = "model."
    fixed = {
        "attention": {"name": "gqa", "bias": True},
        "ffn": {"name": "mlp", "bias": True},
        "norm": {"name": "layernorm"},
        "block": {"name": "parallel", "norms": 1},
        "head": {"bias": True},
    }
    fields = (
        Field("d_model", "hidden_size"),
        Field("n_layers", "num_hidden_layers"),
        Field("attention.n_heads", "num_attention_heads"),
        Field("attention.n_kv_heads", "num_key_value_heads", None),
        Field("attention.dropout", "attention_dropout", 0.0),
        Field("ffn.d_ff", "intermediate_size"),
        Field("ffn.activation", "hidden_act", "gelu_new", ACTIVATION),
        Field("norm.eps", "layer_norm_eps", 1e-5),
        Field("block.dropout", "resid_pdrop", 0.0),
        Field("embedding.dropout", "embd_pdrop", 0.0),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 2048),
        Field("tie_embeddings", "tie_word_embeddings", False),
        Rope(fraction=0.5),
    )
    rules = (
        Rule("model.embed_tokens", "embedding"),
        *(Rule(f"{_LAYER}.self_attn.{name}_proj", f"{_OURS}.mixer.{name}") for name in "qkv"),
        *(Rule(f"{_LAYER}.self_attn.{name}_layernorm", f"{_OURS}.mixer.{name}_norm") for name in "qk"),
        Rule(f"{_LAYER}.self_attn.dense", f"{_OURS}.mixer.o"),
        Rule(f"{_LAYER}.mlp.fc1", f"{_OURS}.ffn.up"),
        Rule(f"{_LAYER}.mlp.fc2", f"{_OURS}.ffn.down"),
        Rule(f"{_LAYER}.input_layernorm", f"{_OURS}.norm"),
        Rule("model.final_layernorm", "final_norm"),
        Rule("lm_head", "head"),
    )
    ignorable = (r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",)

    def read(self, config: HFConfig):
        section = super().read(config)
        if config.get("qk_layernorm"):
            section["attention"]["qk_norm"] = {"name": "layernorm", "eps": section["norm"]["eps"]}
        return section

    def write(self, facts: Facts):
        return super().write(facts) | {"qk_layernorm": facts.get("attention.qk_norm") is not None}
