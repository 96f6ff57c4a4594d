"""gpt-oss (OpenAI 2025): a window in every other layer, sinks, and biased experts with a clamped gated unit."""

from __future__ import annotations

from builder.interop.facts import Facts
from builder.interop.field import FLAG, Field
from builder.interop.form import Woven
from builder.interop.hf_config import HFConfig
from builder.interop.mixture import ROUTED, Mixture, balanced
from builder.interop.rope import Rope
from builder.interop.rule import Rule
from builder.interop.windows import GLOBAL, LOCAL, Windowed

from .llama import STREAM, Llama

_THEIRS, _OURS = "model.layers.{n}", "layers.{n}"
_EXPERTS = f"{_OURS}.ffn.experts"
_STRETCHED = {"name": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}


class GptOss(Mixture, Windowed):
    """transformers.GptOssForCausalLM."""

    model_type = "gpt_oss"
    architecture = "GptOssForCausalLM"
    base = Llama.base
    fixed = {
        **Llama.fixed,
        "attention": {"name": "gqa", "sinks": True},
        "moe": {
            "name": "moe",
            "expert": {"name": "glu", "bias": True, "activation": "quick_gelu", "offset": 1.0},
            "router": {"name": "topk", "bias": True, "weights": "selected"},
        },
    }
    fields = (
        *STREAM,
        Field("attention.n_kv_heads", "num_key_value_heads", 8, nullable=True),
        Field("attention.d_head", "head_dim", 64, nullable=True),
        Field("attention.bias", "attention_bias", True, FLAG),
        Field("moe.n_experts", ("num_local_experts", "num_experts"), 128),
        Field("moe.top_k", "num_experts_per_tok", 4),
        Field("moe.expert.d_ff", "intermediate_size", 2880),
        Field("moe.expert.limit", "swiglu_limit", 7.0),
        balanced(0.001),
        Field("norm.eps", "rms_norm_eps", 1e-5),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 131072),
        Field("tie_embeddings", "tie_word_embeddings", False),
        Rope(theta=150000.0, fraction=None),
    )
    neutral = {
        **ROUTED,
        "hidden_act": ("silu",),  # published, and not read
        "swiglu_alpha": (1.702,),
    }
    rules = (
        *Llama.rules,
        Rule(f"{_THEIRS}.self_attn.sinks", f"{_OURS}.mixer.sinks"),
        Rule(f"{_THEIRS}.mlp.router", f"{_OURS}.ffn.router"),
        Rule(f"{_THEIRS}.mlp.experts.gate_up_proj", (f"{_EXPERTS}.gate.weight", f"{_EXPERTS}.up.weight"), Woven()),
        Rule(f"{_THEIRS}.mlp.experts.gate_up_proj_bias", (f"{_EXPERTS}.gate.bias", f"{_EXPERTS}.up.bias"), Woven()),
        Rule(f"{_THEIRS}.mlp.experts.down_proj", f"{_EXPERTS}.down.weight", Woven()),
        Rule(f"{_THEIRS}.mlp.experts.down_proj_bias", f"{_EXPERTS}.down.bias", Woven()),
    )
    ignorable = Llama.ignorable

    def window(self, config: HFConfig) -> int | None:
        return config.get("sliding_window", None if config.states("sliding_window") else 128)

    def unstated(self, config: HFConfig, n_layers: int, window: int | None) -> list[str]:
        return [GLOBAL if layer % 2 else LOCAL for layer in range(n_layers)]

    def read(self, config: HFConfig):
        section = super().read(config)
        position = section["position"]
        if not any(config.get_section(name) for name in ("rope_parameters", "rope_scaling")):
            position["scaling"] = _STRETCHED | {"original_length": 4096}
        # published files say two things twice, and transformers reads each only once
        said = {"experts_per_token": section["moe"]["top_k"]}
        said |= {"initial_context_length": position.get("scaling", {}).get("original_length")}
        for path, value in said.items():
            if config.get(path, value) != value:
                config.refuse(path, f"transformers passes over it and takes {value}", f"{value}")
        return section

    def write(self, facts: Facts):
        return super().write(facts) | {"swiglu_alpha": 1.702}
