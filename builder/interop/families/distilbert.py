"""DistilBERT (Sanh et al. 2019): BERT with half the layers, one kind of tokens and no pooler."""

from __future__ import annotations

from builder.interop.field import ACTIVATION, Field
from builder.interop.heads import LANGUAGE_MODEL, TIED, Classes, Either, Headed, Top
from builder.interop.hf_config import ANY
from builder.interop.rule import Rule

from .bert import FIXED, Bert

_EPS = 1e-12
_LAYER = {
    **{f"attention.{name}_lin": f"mixer.{name}" for name in "qkv"},
    **{"attention.out_lin": "mixer.o", "sa_layer_norm": "mixer_norm"},
    **{"ffn.lin1": "ffn.up", "ffn.lin2": "ffn.down", "output_layer_norm": "ffn_norm"},
}


class DistilBert(Headed):
    """transformers.DistilBertForMaskedLM, ...ForSequenceClassification, ...ForTokenClassification, and DistilBertModel
    where sentence-transformers says how its rows become vectors."""

    model_type = "distilbert"
    architecture = "DistilBertForMaskedLM"
    base = "distilbert."
    fixed = {**FIXED, "norm.eps": _EPS, "embedding.norm.eps": _EPS}
    fields = (
        Field("d_model", ("dim", "hidden_size"), 768),
        Field("n_layers", ("n_layers", "num_hidden_layers"), 6),
        Field("attention.n_heads", ("n_heads", "num_attention_heads"), 12),
        Field("attention.dropout", "attention_dropout", 0.1),
        Field("ffn.d_ff", "hidden_dim", 3072),
        Field("ffn.activation", "activation", "gelu", ACTIVATION),
        Field(("block.dropout", "embedding.dropout"), "dropout", 0.1),
        Field(("train_length", "deploy_length", "position.length"), "max_position_embeddings", 512),
    )
    tops = (
        Top(
            "DistilBertForMaskedLM",
            LANGUAGE_MODEL | {"transform_norm": {"name": "layernorm", "eps": _EPS}},
            (Field("head.transform", "activation", "gelu", ACTIVATION), TIED),
            (
                Rule("vocab_transform", "head.transform"),
                Rule("vocab_layer_norm", "head.norm"),
                Rule("vocab_projector", "head"),
            ),
        ),
        Top(
            "DistilBertForSequenceClassification",
            {"name": "classifier", "pooling": {"name": "first"}, "transform": "relu", "bias": True},
            (Classes(), Either("head.dropout", ("seq_classif_dropout",), 0.2)),
            (Rule("pre_classifier", "head.transform"), Rule("classifier", "head.classes")),
        ),
        Top(
            "DistilBertForTokenClassification",
            {"name": "token_classifier", "bias": True},
            (Classes(), Either("head.dropout", ("dropout",), 0.1)),
            (Rule("classifier", "head.classes"),),
        ),
        Top("DistilBertModel", {"name": "sentence", "transform": None, "width": None}, bare=True, pooled=True),
    )
    neutral = {
        "sinusoidal_pos_embds": ANY,  # what the table was filled with at first
        "is_decoder": (False,),
        "tie_weights_": (True,),
        **dict.fromkeys(("qa_dropout", "seq_classif_dropout"), ANY),
    }
    ignorable = (r"(distilbert\.)?embeddings\.position_ids",)
    renamed = Bert.renamed
    rules = (
        Rule("distilbert.embeddings.word_embeddings", "embedding"),
        Rule("distilbert.embeddings.LayerNorm", "embedding.norm"),
        Rule("distilbert.embeddings.position_embeddings.weight", "positions.model.weight"),
        *(
            Rule(f"distilbert.transformer.layer.{{n}}.{theirs}", f"layers.{{n}}.{ours}")
            for theirs, ours in _LAYER.items()
        ),
    )
