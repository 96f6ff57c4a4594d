"""Qwen 1.5 and 2 with experts (Qwen Team 2024): beside the chosen experts a gated one for every token."""

from __future__ import annotations

from builder.interop.facts import Facts
from builder.interop.field import ACTIVATION, Choice, Field
from builder.interop.hf_config import HFConfig
from builder.interop.mixture import RENORMALISED, ROUTED, SHARED, Stepped, balanced, beside, experts
from builder.interop.rope import Rope
from builder.interop.rule import Rule
from builder.interop.windows import GLOBAL, LOCAL, Windowed

from .llama import STREAM, Llama


class Qwen2Moe(Stepped, Windowed):
    """transformers.Qwen2MoeForCausalLM."""

    model_type = "qwen2_moe"
    architecture = "Qwen2MoeForCausalLM"
    base = Llama.base
    fixed = {
        **Llama.fixed,
        "moe": SHARED,
    }
    fields = (
        *STREAM,
        Field("ffn.d_ff", "intermediate_size", 5632),
        Field("attention.n_kv_heads", "num_key_value_heads", 16),
        Field("attention.d_head", "head_dim", None),
        Field("attention.bias", "qkv_bias", True, Choice({True: ["k", "q", "v"], False: False})),
        Field("moe.n_experts", "num_experts", 60),
        Field("moe.top_k", "num_experts_per_tok", 4),
        Field("moe.expert.d_ff", "moe_intermediate_size", 1408),
        Field("moe.shared.d_ff", "shared_expert_intermediate_size", 5632),
        Field(("ffn.activation", "moe.shared.activation", "moe.expert.activation"), "hidden_act", "silu", ACTIVATION),
        Field("moe.router.weights", "norm_topk_prob", False, RENORMALISED),
        balanced(0.001),
        Field("norm.eps", "rms_norm_eps", 1e-6),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 32768),
        Field("tie_embeddings", "tie_word_embeddings", False),
        Rope(fraction=None),
    )
    neutral = ROUTED
    rules = (
        *Llama.rules,
        Rule("model.layers.{n}.mlp.gate", "layers.{n}.ffn.router"),
        *experts(),
        *beside("shared_expert"),
        Rule("model.layers.{n}.mlp.shared_expert_gate", "layers.{n}.ffn.shared_gate"),
    )
    ignorable = Llama.ignorable

    def window(self, config: HFConfig) -> int | None:
        window = super().window(config)
        return window if config.get("use_sliding_window", False) else None

    def unstated(self, config: HFConfig, n_layers: int, window: int | None) -> list[str]:
        last = 0 if window is None else config.get("max_window_layers", 28)
        return [LOCAL if layer < last and layer % 2 == 0 else GLOBAL for layer in range(n_layers)]

    def read(self, config: HFConfig):
        config.get("max_window_layers")  # beside layer_types it says nothing
        return super().read(config)

    def write(self, facts: Facts):
        fields = super().write(facts)
        return fields | {"use_sliding_window": LOCAL in fields["layer_types"]}
