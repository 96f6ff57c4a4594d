"""BERT (Devlin et al. 2019): an encoder with norms on the stream, learned positions, and kinds of tokens."""

from __future__ import annotations

from builder.interop.field import ACTIVATION, Field
from builder.interop.heads import LANGUAGE_MODEL, Classes, Either, Headed, Top
from builder.interop.hf_config import ANY
from builder.interop.rule import Rule

_EMBEDDINGS = {
    "word_embeddings": "embedding",
    "LayerNorm": "embedding.norm",
    "token_type_embeddings": "embedding.types",
}
_LAYER = {
    **{f"attention.self.{name}": f"mixer.{name[0]}" for name in ("query", "key", "value")},
    **{"attention.output.dense": "mixer.o", "attention.output.LayerNorm": "mixer_norm"},
    **{"intermediate.dense": "ffn.up", "output.dense": "ffn.down", "output.LayerNorm": "ffn_norm"},
}
SIZES = (
    Field("d_model", "hidden_size"),
    Field("n_layers", "num_hidden_layers"),
    Field("attention.n_heads", "num_attention_heads"),
    Field("attention.dropout", "attention_probs_dropout_prob", 0.1),
    Field("ffn.d_ff", "intermediate_size"),
    Field("ffn.activation", "hidden_act", "gelu", ACTIVATION),
    Field(("block.dropout", "embedding.dropout"), "hidden_dropout_prob", 0.1),
    Field(("norm.eps", "embedding.norm.eps"), "layer_norm_eps", 1e-12),
    Field("embedding.types", "type_vocab_size", 2),
)
"""Fields that RoBERTa has too."""
DROPOUT = Either("head.dropout", ("classifier_dropout", "hidden_dropout_prob"), 0.1)
POOLER = {"name": "sentence", "pooling": {"name": "first"}, "transform": "tanh", "width": None, "normalise": False}
"""What a bare model gives for a row: its pooler, a layer behind the first token."""
UNUSED = {"pooler.dense.weight": 2, "pooler.dense.bias": 1}
"""The pooler of a bare model, where a sentence's vector is made of all of its tokens."""
FIXED = {
    "kind": "encoder",
    "attention": {"name": "gqa", "bias": True},
    "ffn": {"name": "mlp", "bias": True},
    "norm": {"name": "layernorm"},
    "block": {"name": "post_norm"},
    "embedding.norm": {"name": "layernorm"},
    "position": {"name": "learned"},
}


def encoder(base: str) -> tuple[Rule, ...]:
    """The tensors of a family whose names begin so, but for its heads."""
    return (
        *(Rule(f"{base}embeddings.{theirs}", ours) for theirs, ours in _EMBEDDINGS.items()),
        Rule(f"{base}embeddings.position_embeddings.weight", "positions.model.weight"),
        *(Rule(f"{base}encoder.layer.{{n}}.{theirs}", f"layers.{{n}}.{ours}") for theirs, ours in _LAYER.items()),
    )


class Bert(Headed):
    """transformers.BertForMaskedLM, BertForSequenceClassification, BertForTokenClassification and BertModel."""

    model_type = "bert"
    architecture = "BertForMaskedLM"
    base = "bert."
    fixed = FIXED
    fields = (*SIZES, Field(("train_length", "deploy_length", "position.length"), "max_position_embeddings", 512))
    tops = (
        Top(
            "BertForMaskedLM",
            LANGUAGE_MODEL,
            (
                Field("head.transform", "hidden_act", "gelu", ACTIVATION),
                Field("head.transform_norm.eps", "layer_norm_eps", 1e-12),
            ),
            (
                Rule("cls.predictions.transform.dense", "head.transform"),
                Rule("cls.predictions.transform.LayerNorm", "head.norm"),
                Rule("cls.predictions.decoder.weight", "head.weight"),
                Rule("cls.predictions.bias", "head.bias"),
            ),
        ),
        Top(
            "BertForSequenceClassification",
            {"name": "classifier", "pooling": {"name": "first"}, "transform": "tanh", "bias": True},
            (Classes(), DROPOUT),
            (Rule("bert.pooler.dense", "head.transform"), Rule("classifier", "head.classes")),
        ),
        Top(
            "BertForTokenClassification",
            {"name": "token_classifier", "bias": True},
            (Classes(), DROPOUT),
            (Rule("classifier", "head.classes"),),
        ),
        Top("BertModel", POOLER, rules=(Rule("pooler.dense", "head.transform"),), bare=True),
        Top("BertModel", {"name": "sentence", "transform": None, "width": None}, bare=True, pooled=True, needs=UNUSED),
    )
    neutral = {
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "tie_word_embeddings": (True,),
        # of the code that trained it
        **dict.fromkeys(("directionality", "pooler_type", "pooler_fc_size", "pooler_num_attention_heads"), ANY),
        **dict.fromkeys(("pooler_num_fc_layers", "pooler_size_per_head"), ANY),
    }
    ignorable = (r"(bert\.)?pooler\..*", r"cls\.seq_relationship\..*", r"(bert\.)?embeddings\.position_ids")
    copies = {"cls.predictions.decoder.bias": "head.bias"}
    renamed = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
    rules = encoder(base)
