"""GPT-NeoX and Pythia (Black et al. 2022; Biderman et al. 2023): attention and ffn side by side, partial rotary."""

from __future__ import annotations

from builder.interop.facts import Facts
from builder.interop.family import Family
from builder.interop.field import ACTIVATION, Choice, Field
from builder.interop.form import Grouped
from builder.interop.hf_config import ANY
from builder.interop.rope import Rope
from builder.interop.rule import Rule

_LAYER, _OURS = "gpt_neox.layers.{n}", "layers.{n}"


class GPTNeoX(Family):
    """transformers.GPTNeoXForCausalLM."""

    model_type = "gpt_neox"
    architecture = "GPTNeoXForCausalLM"
    base = "gpt_neox."
    fixed = {
        "attention": {"name": "gqa"},
        "ffn": {"name": "mlp", "bias": True},
        "norm": {"name": "layernorm"},
    }
    fields = (
        Field("d_model", "hidden_size"),
        Field("n_layers", "num_hidden_layers"),
        Field("attention.n_heads", "num_attention_heads"),
        Field("attention.bias", "attention_bias", True),
        Field("attention.dropout", "attention_dropout", 0.0),
        Field("ffn.d_ff", "intermediate_size"),
        Field("ffn.activation", "hidden_act", "gelu", ACTIVATION),
        Field("norm.eps", "layer_norm_eps", 1e-5),
        Field(
            "block",
            "use_parallel_residual",
            True,
            Choice({True: {"name": "parallel", "norms": 2}, False: {"name": "pre_norm"}}),
        ),
        Field(("block.dropout", "embedding.dropout"), "hidden_dropout", 0.0),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 2048),
        Field("tie_embeddings", "tie_word_embeddings", False),
        Rope(fraction=0.25, fraction_names=("rotary_pct",), theta_names=("rotary_emb_base",)),
    )
    neutral = {"attention_probs_dropout_prob": ANY, "hidden_dropout_prob": ANY}  # of GPT-NeoX-20B; nothing reads them
    rules = (
        Rule("gpt_neox.embed_in", "embedding"),
        Rule(f"{_LAYER}.attention.dense", f"{_OURS}.mixer.o"),
        Rule(f"{_LAYER}.mlp.dense_h_to_4h", f"{_OURS}.ffn.up"),
        Rule(f"{_LAYER}.mlp.dense_4h_to_h", f"{_OURS}.ffn.down"),
        Rule(f"{_LAYER}.input_layernorm", f"{_OURS}.mixer_norm"),
        Rule(f"{_LAYER}.post_attention_layernorm", f"{_OURS}.ffn_norm"),
        Rule("gpt_neox.final_layer_norm", "final_norm"),
        Rule("embed_out", "head"),
    )
    ignorable = (r"gpt_neox\.layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",)

    def tensors(self, facts: Facts):
        fused = tuple(f"{_OURS}.mixer.{name}" for name in "qkv")
        return (
            *self.rules,
            Rule(f"{_LAYER}.attention.query_key_value", fused, Grouped(facts["attention.d_head"])),
        )
