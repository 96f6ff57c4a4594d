"""RoBERTa (Liu et al. 2019): BERT whose positions begin behind the id of padding, and with other heads."""

from __future__ import annotations

from typing import Any

from builder.interop.facts import Facts
from builder.interop.field import Field, Formula
from builder.interop.heads import LANGUAGE_MODEL, Classes, Headed, Top
from builder.interop.hf_config import HFConfig
from builder.interop.rule import Rule

from .bert import DROPOUT, FIXED, POOLER, SIZES, UNUSED, Bert, encoder


def _pad(offset: int) -> int:
    if offset < 1:
        raise ValueError(offset)
    return offset - 1


class Roberta(Headed):
    """transformers.RobertaForMaskedLM, ...ForSequenceClassification, ...ForTokenClassification and RobertaModel.

    The first token stands at row pad_token_id + 1 of the table, whose rows max_position_embeddings counts; there the
    padding itself, told by its id, stands at row pad_token_id.
    """

    model_type = "roberta"
    architecture = "RobertaForMaskedLM"
    base = "roberta."
    fixed = FIXED
    fields = (*SIZES, Field("position.offset", "pad_token_id", 1, Formula(lambda pad: pad + 1, _pad)))
    tops = (
        Top(
            "RobertaForMaskedLM",
            LANGUAGE_MODEL | {"transform": "gelu"},
            (Field("head.transform_norm.eps", "layer_norm_eps", 1e-12),),
            (
                Rule("lm_head.dense", "head.transform"),
                Rule("lm_head.layer_norm", "head.norm"),
                Rule("lm_head.decoder.weight", "head.weight"),
                Rule("lm_head.bias", "head.bias"),
            ),
        ),
        Top(
            "RobertaForSequenceClassification",
            {"name": "classifier", "pooling": {"name": "first"}, "transform": "tanh", "bias": True},
            (Classes(), DROPOUT),
            (Rule("classifier.dense", "head.transform"), Rule("classifier.out_proj", "head.classes")),
        ),
        Top(
            "RobertaForTokenClassification",
            {"name": "token_classifier", "bias": True},
            (Classes(), DROPOUT),
            (Rule("classifier", "head.classes"),),
        ),
        Top("RobertaModel", POOLER, rules=(Rule("pooler.dense", "head.transform"),), bare=True),
        Top(
            "RobertaModel", {"name": "sentence", "transform": None, "width": None}, bare=True, pooled=True, needs=UNUSED
        ),
    )
    neutral = Bert.neutral
    ignorable = (r"(roberta\.)?pooler\..*", r"(roberta\.)?embeddings\.position_ids")
    copies = {"lm_head.decoder.bias": "head.bias"}
    rules = encoder(base)

    def read(self, config: HFConfig) -> dict[str, Any]:
        section, rows = super().read(config), config.get("max_position_embeddings", 512)
        config.judge()
        position = section["position"]
        if not isinstance(rows, int) or rows <= position["offset"]:
            config.refuse(
                "max_position_embeddings", f"more rows than the {position['offset']} before the first position"
            )
            config.judge()
        length = rows - position["offset"]
        return section | {"position": position | {"length": length}, "train_length": length, "deploy_length": length}

    def write(self, facts: Facts) -> dict[str, Any]:
        return super().write(facts) | {"max_position_embeddings": facts["position.length"] + facts["position.offset"]}
