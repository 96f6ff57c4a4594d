"""ModernBERT (Warner et al. 2024): gated ffns, rotary positions, no biases, and two layers in three that are local."""

from __future__ import annotations

from typing import Any

from builder.interop.facts import Facts
from builder.interop.field import ACTIVATION, FLAG, Choice, Field, count
from builder.interop.heads import TIED, Classes, Headed, Top
from builder.interop.hf_config import ANY, HFConfig
from builder.interop.rope import Rope
from builder.interop.rule import Rule
from builder.interop.windows import GLOBAL, LOCAL, Windowed

_LAYER, _OURS = "model.layers.{n}", "layers.{n}"
_TRANSFORM = (
    Field("head.transform", "classifier_activation", "gelu", ACTIVATION),
    Field("head.transform_bias", "classifier_bias", False),
    Field("head.transform_norm.eps", "norm_eps", 1e-5),
    Field("head.transform_norm.bias", "norm_bias", False),
)
_RULES = (Rule("head.dense", "head.transform"), Rule("head.norm", "head.norm"))
_NORM = {"transform_norm": {"name": "layernorm"}}
_POOLING = Field("head.pooling.name", "classifier_pooling", "cls", Choice({"cls": "first", "mean": "mean"}))


class ModernBert(Headed, Windowed):
    """transformers.ModernBertForMaskedLM, ...ForSequenceClassification, ...ForTokenClassification, and ModernBertModel
    where sentence-transformers says how its rows become vectors.

    The first layer has no norm before its attention.
    """

    model_type = "modernbert"
    architecture = "ModernBertForMaskedLM"
    base = "model."
    fixed = {
        "kind": "encoder",
        "attention": {"name": "gqa"},
        "ffn": {"name": "glu"},
        "norm": {"name": "layernorm"},
        "block": {"name": "pre_norm", "first_norm": False},
        "embedding.norm": {"name": "layernorm"},
    }
    fields = (
        Field("d_model", "hidden_size"),
        Field("n_layers", "num_hidden_layers"),
        Field("attention.n_heads", "num_attention_heads"),
        Field("attention.dropout", "attention_dropout", 0.0),
        Field("attention.bias", "attention_bias", False, FLAG),
        Field("ffn.d_ff", "intermediate_size"),
        Field("ffn.activation", "hidden_activation", "gelu", ACTIVATION),
        Field("ffn.bias", "mlp_bias", False),
        Field("embedding.dropout", "embedding_dropout", 0.0),
        Field(("norm.eps", "embedding.norm.eps"), "norm_eps", 1e-5),
        Field(("norm.bias", "embedding.norm.bias"), "norm_bias", False),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 8192),
        Rope(section=GLOBAL, theta=160000.0, fraction=None, theta_names=("global_rope_theta",), scaling_name=""),
        Rope("local.position", LOCAL, fraction=None, theta_names=("local_rope_theta",), scaling_name=""),
    )
    tops = (
        Top(
            "ModernBertForMaskedLM",
            {"name": "language_model", **_NORM},
            (*_TRANSFORM, Field("head.bias", "decoder_bias", True), TIED),
            (*_RULES, Rule("decoder", "head")),
        ),
        Top(
            "ModernBertForSequenceClassification",
            {"name": "classifier", "bias": True, **_NORM},
            (*_TRANSFORM, Classes(), Field("head.dropout", "classifier_dropout", 0.0), _POOLING),
            (*_RULES, Rule("classifier", "head.classes")),
        ),
        Top(
            "ModernBertForTokenClassification",
            {"name": "token_classifier", "bias": True, **_NORM},
            (*_TRANSFORM, Classes(), Field("head.dropout", "classifier_dropout", 0.0)),
            (*_RULES, Rule("classifier", "head.classes")),
        ),
        Top("ModernBertModel", {"name": "sentence", "transform": None, "width": None}, bare=True, pooled=True),
    )
    neutral = {
        "is_decoder": (False,),
        "position_embedding_type": ANY,
        "layer_norm_eps": ANY,  # published beside norm_eps, and not read
        "mlp_dropout": ANY,
        "initializer_cutoff_factor": ANY,
        "global_attn_every_n_layers": ANY,  # where layer_types is stated
        **{name: ANY for name in ("cls_token_id", "mask_token_id", "unk_token_id")},
        # how it is computed, and of which positions
        **dict.fromkeys(("deterministic_flash_attn", "reference_compile", "repad_logits_with_grad"), ANY),
        **dict.fromkeys(("sparse_prediction", "sparse_pred_ignore_index"), ANY),
        # of heads for other tasks
        **dict.fromkeys(("classifier_pooling", "classifier_activation", "classifier_bias", "decoder_bias"), ANY),
    }
    rules = (
        Rule("model.embeddings.tok_embeddings", "embedding"),
        Rule("model.embeddings.norm", "embedding.norm"),
        Rule(f"{_LAYER}.attn.Wqkv", tuple(f"{_OURS}.mixer.{name}" for name in "qkv")),
        Rule(f"{_LAYER}.attn.Wo", f"{_OURS}.mixer.o"),
        Rule(f"{_LAYER}.attn_norm", f"{_OURS}.mixer_norm"),
        Rule(f"{_LAYER}.mlp.Wi", tuple(f"{_OURS}.ffn.{name}" for name in ("gate", "up"))),
        Rule(f"{_LAYER}.mlp.Wo", f"{_OURS}.ffn.down"),
        Rule(f"{_LAYER}.mlp_norm", f"{_OURS}.ffn_norm"),
        Rule("model.final_norm", "final_norm"),
    )

    def window(self, config: HFConfig) -> int:
        """Half of `local_attention` on each side, and the token itself."""
        return count(config, "local_attention", 128, "(ours: window)") // 2 + 1

    def unstated(self, config: HFConfig, n_layers: int, window: int | None) -> list[str]:
        every = count(config, "global_attn_every_n_layers", 3, "layers")
        return [LOCAL if layer % every else GLOBAL for layer in range(n_layers)]

    def write(self, facts: Facts) -> dict[str, Any]:
        fields = super().write(facts) | dict.fromkeys(("cls_token_id", "sep_token_id"))  # or theirs would be put in
        window = fields.pop("sliding_window", None)
        return fields | ({} if window is None else {"local_attention": 2 * (window - 1)})
