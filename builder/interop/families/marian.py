"""Marian (Junczys-Dowmunt et al. 2018), as the translators of OPUS-MT are: BART with fixed waves for positions."""

from __future__ import annotations

from typing import Any

from builder.interop.facts import Facts
from builder.interop.field import Field
from builder.interop.hf_config import HFConfig
from builder.interop.rule import Rule

from .bart import AROUND, FIXED, NEUTRAL, SIZES, Bart


class Marian(Bart):
    """transformers.MarianMTModel with one table for both languages; its bias on the logits is trained elsewhere."""

    model_type = "marian"
    architecture = "MarianMTModel"
    fixed = {**FIXED, "position": {"name": "sinusoidal", "pairing": "half"}}
    fields = (
        *SIZES,
        Field("head.bias", "beside.bias", True),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 1024),
    )
    neutral = {
        **NEUTRAL,
        "share_encoder_decoder_embeddings": (True,),
        "normalize_embedding": (False,),
        "static_position_embeddings": (True,),
        "add_bias_logits": (False,),
        "extra_pos_embeddings": (58101,),  # published, and read by nothing
    }
    ids = {"decoder_start_token_id": 0}
    rules: tuple[Rule, ...] = AROUND
    ignorable = (*Bart.ignorable, r"model\.(en|de)coder\.embed_positions\.weight")  # the waves

    def read(self, config: HFConfig) -> dict[str, Any]:
        section = super().read(config)
        if config.get("decoder_vocab_size", section["vocab_size"]) != section["vocab_size"]:
            config.refuse("decoder_vocab_size", f"both languages have one table, of {section['vocab_size']} rows")
        return section

    def write(self, facts: Facts) -> dict[str, Any]:
        return super().write(facts) | {"decoder_vocab_size": facts["vocab_size"]}
