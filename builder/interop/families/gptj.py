"""GPT-J (Wang & Komatsuzaki 2021): attention and ffn side by side behind one norm, interleaved rotary positions."""

from __future__ import annotations

import math

from builder.interop.facts import Facts
from builder.interop.family import Family
from builder.interop.field import ACTIVATION, Field
from builder.interop.hf_config import ANY, HFConfig
from builder.interop.rule import Rule

_LAYER, _OURS = "transformer.h.{n}", "layers.{n}"


class GPTJ(Family):
    """transformers.GPTJForCausalLM."""

    model_type = "gptj"
    architecture = "GPTJForCausalLM"
    base = "transformer."
    fixed = {
        "attention": {"name": "gqa"},
        "ffn": {"name": "mlp", "bias": True},
        "norm": {"name": "layernorm"},
        "block": {"name": "parallel", "norms": 1},
        "position": {"name": "rope", "theta": 10000.0, "pairing": "interleaved"},
        "head": {"bias": True},
    }
    fields = (
        Field("d_model", "n_embd"),
        Field("n_layers", "n_layer"),
        Field("attention.n_heads", "n_head"),
        Field(("train_length", "deploy_length"), ("n_positions", "n_ctx")),
        Field("ffn.d_ff", "n_inner", None),
        Field("ffn.activation", "activation_function", "gelu_new", ACTIVATION),
        Field("norm.eps", "layer_norm_epsilon", 1e-5),
        Field("block.dropout", "resid_pdrop", 0.0),
        Field("embedding.dropout", "embd_pdrop", 0.0),
        Field("attention.dropout", "attn_pdrop", 0.0),
        Field("tie_embeddings", "tie_word_embeddings", False),
    )
    neutral = {
        "rotary": (True,),
        "scale_attn_weights": (True,),
        "summary_type": ANY,
        "summary_use_proj": ANY,
        "summary_activation": ANY,
        "summary_proj_to_labels": ANY,
        "summary_first_dropout": ANY,
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
        section["ffn"].setdefault("d_ff", 4 * section["d_model"])
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
