"""GPT-J (Wang & Komatsuzaki 2021): attention and ffn side by side behind one norm, interleaved rotary positions."""

from __future__ import annotations

import math

from builder.interop.facts import Facts
from builder.interop.family import Family
from builder.interop.field import Field
from builder.interop.hf_config import HFConfig
from builder.interop.rule import Rule

from .gpt2 import SIZES, SUMMARY

_LAYER, _OURS = "transformer.h.{n}", "layers.{n}"


class GPTJ(Family):
    """transformers.GPTJForCausalLM."""

    model_type = "gptj"
    architecture = "GPTJForCausalLM"
    base = "transformer."
    widening = 4
    fixed = {
        "attention": {"name": "gqa"},
        "ffn": {"name": "mlp", "bias": True},
        "norm": {"name": "layernorm"},
        "block": {"name": "parallel", "norms": 1},
        "position": {"name": "rope", "theta": 10000.0, "pairing": "interleaved"},
        "head": {"bias": True},
    }
    fields = (
        *SIZES,
        Field(("train_length", "deploy_length"), ("n_positions", "n_ctx")),
        Field("block.dropout", "resid_pdrop", 0.0),
        Field("embedding.dropout", "embd_pdrop", 0.0),
        Field("attention.dropout", "attn_pdrop", 0.0),
        Field("tie_embeddings", "tie_word_embeddings", False),
    )
    neutral = {
        "rotary": (True,),
        "scale_attn_weights": (True,),
        **SUMMARY,
    }
    rules = (
        Rule("transformer.wte", "embedding"),
        *(Rule(f"{_LAYER}.attn.{name}_proj", f"{_OURS}.mixer.{name}") for name in "qkv"),
        Rule(f"{_LAYER}.attn.out_proj", f"{_OURS}.mixer.o"),
        Rule(f"{_LAYER}.mlp.fc_in", f"{_OURS}.ffn.up"),
        Rule(f"{_LAYER}.mlp.fc_out", f"{_OURS}.ffn.down"),
        Rule(f"{_LAYER}.ln_1", f"{_OURS}.norm"),
        Rule("transformer.ln_f", "final_norm"),
        Rule("lm_head", "head"),
    )
    ignorable = (r"transformer\.h\.\d+\.attn\.(bias|masked_bias|embed_positions)",)

    def read(self, config: HFConfig):
        section = super().read(config)
        width, turned = section["d_model"] // section["attention"]["n_heads"], config.get("rotary_dim", 64)
        if not 0 < turned <= width:
            config.refuse("rotary_dim", f"at most the {width} numbers of a head")
            config.judge()
        section["position"]["fraction"] = _fraction(turned, width)
        return section

    def write(self, facts: Facts):
        turned = int(facts["attention.d_head"] * facts.get("position.fraction", 1.0))
        return super().write(facts) | {"rotary_dim": turned}


def _fraction(turned: int, width: int) -> float:
    """The part of a head that is `turned`, rounded so that the whole number comes back."""
    fraction = turned / width
    return fraction if int(width * fraction) == turned else math.nextafter(fraction, 1.0)
