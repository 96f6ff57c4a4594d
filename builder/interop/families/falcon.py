"""Falcon (Almazrouei et al. 2023): the blocks of 7B, of 40B, and of the RefinedWeb models.

Where it has ALiBi, theirs takes slope times key position in bfloat16. That is what ours computes as long as nothing is
lost, up to 8 heads (a power of two) and 256 positions; beyond, theirs is rounded and ours is not.
"""

from __future__ import annotations

from typing import Any

from builder.interop.facts import Facts
from builder.interop.family import Family
from builder.interop.field import ACTIVATION, Field
from builder.interop.form import Grouped
from builder.interop.hf_config import ANY, HFConfig
from builder.interop.rope import Rope
from builder.interop.rule import Rule

_LAYER, _OURS = "transformer.h.{n}", "layers.{n}"
_ROPE = Rope(fraction=None)


class Falcon(Family):
    """transformers.FalconForCausalLM."""

    model_type = "falcon"
    architecture = "FalconForCausalLM"
    base = "transformer."
    widening = 4
    fixed = {"attention": {"name": "gqa"}, "ffn": {"name": "mlp"}, "norm": {"name": "layernorm"}}
    fields = (
        Field("d_model", ("hidden_size", "n_embed")),
        Field("n_layers", "num_hidden_layers"),
        Field("attention.n_heads", "num_attention_heads"),
        Field("attention.dropout", "attention_dropout", 0.0),
        Field("ffn.d_ff", "ffn_hidden_size", None),
        Field("ffn.activation", "activation", "gelu", ACTIVATION),
        Field(("attention.bias", "ffn.bias"), "bias", False),
        Field("norm.eps", "layer_norm_epsilon", 1e-5),
        Field("block.dropout", "hidden_dropout", 0.0),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 2048),
        Field("tie_embeddings", "tie_word_embeddings", True),
    )
    neutral = {
        "apply_residual_connection_post_layernorm": (False,),
        "ff_factor": ANY,  # ffn_hidden_size says it
    }
    rules = (
        Rule("transformer.word_embeddings", "embedding"),
        Rule(f"{_LAYER}.self_attention.dense", f"{_OURS}.mixer.o"),
        Rule(f"{_LAYER}.mlp.dense_h_to_4h", f"{_OURS}.ffn.up"),
        Rule(f"{_LAYER}.mlp.dense_4h_to_h", f"{_OURS}.ffn.down"),
        Rule("transformer.ln_f", "final_norm"),
        Rule("lm_head", "head"),
    )
    ignorable = (r"transformer\.(h\.\d+\.self_attention\.)?rotary_emb\.inv_freq",)

    def read(self, config: HFConfig):
        section = super().read(config)
        width, heads = section["d_model"], section["attention"]["n_heads"]
        section["block"] |= _block(config)
        section["attention"]["n_kv_heads"] = _kv_heads(config, heads)
        if config.get("alibi", False):
            config.get("rope_parameters")  # may stand there too, and isn't used
            return section | {"position": {"name": "alibi", "multiplier": (width // heads) ** -0.5}}
        return section | _ROPE.read(config)

    def write(self, facts: Facts):
        heads, kv_heads = facts["attention.n_heads"], facts["attention.n_kv_heads"]
        parallel, norms = facts["block.name"] == "parallel", facts.get("block.norms")
        new = norms == 2 or (parallel and kv_heads not in (1, heads))
        fields = {
            "alibi": facts["position.name"] == "alibi",
            "parallel_attn": parallel,
            "multi_query": kv_heads == 1,
            "new_decoder_architecture": new,
            "num_ln_in_parallel_attn": norms if new else None,
            "num_kv_heads": kv_heads if new else heads,
        }
        return super().write(facts) | _ROPE.write(facts) | fields

    def note(self, facts: Facts, config: HFConfig):
        heads, length = facts["attention.n_heads"], facts["deploy_length"]
        if facts["position.name"] != "alibi" or (heads in (1, 2, 4, 8) and length <= 256):
            return ""
        return (
            f"transformers has Falcon's ALiBi in bfloat16, which rounds it with {heads} heads and {length} positions; "
            "here it is exact, so logits differ from theirs, by some hundredths after a few hundred tokens"
        )

    def tensors(self, facts: Facts):
        fused = tuple(f"{_OURS}.mixer.{name}" for name in "qkv")
        norms = [
            ("input_layernorm", "norm"),
            ("input_layernorm", "mixer_norm"),
            ("post_attention_layernorm", "ffn_norm"),
        ]
        if facts.get("block.norms") == 2:
            norms = [("ln_attn", "mixer_norm"), ("ln_mlp", "ffn_norm")]
        return (
            *self.rules,
            *(Rule(f"{_LAYER}.{theirs}", f"{_OURS}.{ours}") for theirs, ours in norms),
            Rule(f"{_LAYER}.self_attention.query_key_value", fused, Grouped(facts["attention.d_head"])),
        )


def _block(config: HFConfig) -> dict[str, Any]:
    """The block: the new architecture is parallel, with two norms unless told otherwise; the old one has one if so."""
    new, parallel = config.get("new_decoder_architecture", False), config.get("parallel_attn", True)
    norms = config.get("num_ln_in_parallel_attn", 2 if new else 1)
    if new and not parallel:
        config.refuse("parallel_attn", "the new_decoder_architecture is parallel", "true")
    if parallel and norms not in ((1, 2) if new else (1,)):
        config.refuse("num_ln_in_parallel_attn", "1, or 2 in the new_decoder_architecture", "null")
    return {"name": "parallel", "norms": norms} if parallel else {"name": "pre_norm"}


def _kv_heads(config: HFConfig, heads: int) -> int:
    """How many KV heads: only the new architecture takes the number that is stated."""
    new, single = config.get("new_decoder_architecture", False), config.get("multi_query", True)
    stated = config.get("num_kv_heads", heads)
    if not new and not single and stated != heads:
        config.refuse("num_kv_heads", f"without multi_query, one for each of the {heads} heads", "null")
    return stated if new else 1 if single else heads
