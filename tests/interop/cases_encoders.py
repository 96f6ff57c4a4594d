"""Tiny models of transformers that read in both directions, {name: (its class, a config class, its fields)}."""

import transformers as tf

from tests.interop.cases import FAR, NEAR, PLAIN, UNTIED
from tests.interop.conftest import IDS

BERT = PLAIN | {"layer_norm_eps": 1e-3}
ROBERTA = BERT | {"pad_token_id": 1, "bos_token_id": 0}
DISTIL = IDS | {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 64}
MODERN = PLAIN | {"num_hidden_layers": 4, "local_attention": 6, "cls_token_id": None, "sep_token_id": None}
T5 = IDS | {"d_model": 32, "d_kv": 6, "d_ff": 48, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
T5 |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 16}
BART = IDS | {
    **{"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48},
    **{"encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 64},
    **{"decoder_start_token_id": 2, "forced_eos_token_id": 2},
}
THREE = {"id2label": {0: "a", 1: "b", 2: "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}
ENCODERS = {
    "bert": (tf.BertForMaskedLM, tf.BertConfig, BERT),
    "bert another activation, one kind of tokens": (
        tf.BertForMaskedLM,
        tf.BertConfig,
        BERT | {"hidden_act": "gelu_new", "type_vocab_size": 1},
    ),
    "bert classes": (tf.BertForSequenceClassification, tf.BertConfig, BERT | THREE),
    "bert token classes": (tf.BertForTokenClassification, tf.BertConfig, BERT | THREE),
    "bert pooler": (tf.BertModel, tf.BertConfig, BERT),
    "roberta": (tf.RobertaForMaskedLM, tf.RobertaConfig, ROBERTA),
    "roberta later positions, classes": (
        tf.RobertaForSequenceClassification,
        tf.RobertaConfig,
        ROBERTA | THREE | {"pad_token_id": 3},
    ),
    "roberta token classes": (tf.RobertaForTokenClassification, tf.RobertaConfig, ROBERTA | THREE),
    "roberta pooler": (tf.RobertaModel, tf.RobertaConfig, ROBERTA),
    "distilbert": (tf.DistilBertForMaskedLM, tf.DistilBertConfig, DISTIL),
    "distilbert untied": (tf.DistilBertForMaskedLM, tf.DistilBertConfig, DISTIL | UNTIED | {"activation": "relu"}),
    "distilbert classes": (tf.DistilBertForSequenceClassification, tf.DistilBertConfig, DISTIL | THREE),
    "distilbert token classes": (tf.DistilBertForTokenClassification, tf.DistilBertConfig, DISTIL | THREE),
    "modernbert": (tf.ModernBertForMaskedLM, tf.ModernBertConfig, MODERN),
    "modernbert untied, biases, far layers only": (
        tf.ModernBertForMaskedLM,
        tf.ModernBertConfig,
        MODERN
        | UNTIED
        | {"layer_types": [FAR] * 4, "attention_bias": True, "mlp_bias": True, "norm_bias": True, "decoder_bias": False}
        | {"classifier_bias": True, "classifier_activation": "relu", "hidden_activation": "relu"},
    ),
    "modernbert near layers only, scaled, mean classes": (
        tf.ModernBertForSequenceClassification,
        tf.ModernBertConfig,
        MODERN
        | THREE
        | {"layer_types": [NEAR] * 4, "classifier_pooling": "mean", "norm_bias": True}
        | {"rope_parameters": {NEAR: {"rope_type": "linear", "factor": 2.0, "rope_theta": 50.0}}},
    ),
    "modernbert classes": (tf.ModernBertForSequenceClassification, tf.ModernBertConfig, MODERN | THREE),
    "modernbert token classes": (tf.ModernBertForTokenClassification, tf.ModernBertConfig, MODERN | THREE),
}
TWO_TOWERS = {
    "t5": (tf.T5ForConditionalGeneration, tf.T5Config, T5),
    "t5 gated, unscaled, deeper decoder": (
        tf.T5ForConditionalGeneration,
        tf.T5Config,
        T5 | UNTIED | {"feed_forward_proj": "gated-gelu", "num_decoder_layers": 3},
    ),
    "t5 gated by silu, deeper encoder": (
        tf.T5ForConditionalGeneration,
        tf.T5Config,
        T5 | {"feed_forward_proj": "gated-silu", "num_decoder_layers": 1},
    ),
    "bart": (tf.BartForConditionalGeneration, tf.BartConfig, BART),
    "bart scaled, towers of their own": (
        tf.BartForConditionalGeneration,
        tf.BartConfig,
        BART
        | {"scale_embedding": True, "encoder_layers": 3, "encoder_ffn_dim": 40, "encoder_attention_heads": 2}
        | {"activation_function": "relu"},
    ),
    "marian": (tf.MarianMTModel, tf.MarianConfig, BART),
    "marian scaled, deeper decoder": (
        tf.MarianMTModel,
        tf.MarianConfig,
        BART | {"scale_embedding": True, "activation_function": "swish", "decoder_layers": 3},
    ),
}
