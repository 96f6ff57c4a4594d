"""Qwen 2 and 2.5 (Yang et al. 2024): Llama with biases on q, k and v, and windows in the upper layers."""

from __future__ import annotations

from builder.interop.facts import Facts
from builder.interop.field import ACTIVATION, Field
from builder.interop.hf_config import ANY, HFConfig
from builder.interop.rope import Rope
from builder.interop.windows import GLOBAL, LOCAL, Windowed

from .llama import SIZES, Llama


class Qwen2(Windowed):
    """transformers.Qwen2ForCausalLM."""

    model_type = "qwen2"
    architecture = "Qwen2ForCausalLM"
    base = Llama.base
    fixed = {**Llama.fixed, "attention": {"name": "gqa", "bias": ["q", "k", "v"]}}
    fields = (
        *SIZES,
        Field("attention.n_kv_heads", "num_key_value_heads", 32, nullable=True),
        Field("attention.d_head", "head_dim", None),
        Field("ffn.activation", "hidden_act", "silu", ACTIVATION),
        Field("norm.eps", "rms_norm_eps", 1e-6),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 32768),
        Field("tie_embeddings", "tie_word_embeddings", False),
        Rope(fraction=None),
    )
    neutral = {
        "max_window_layers": ANY,  # where layer_types is stated
        "use_mrope": (False,),
    }
    rules = Llama.rules
    ignorable = Llama.ignorable

    def window(self, config: HFConfig) -> int | None:
        window = super().window(config)
        return window if config.get("use_sliding_window", False) else None

    def unstated(self, config: HFConfig, n_layers: int, window: int | None) -> list[str]:
        first = n_layers if window is None else config.get("max_window_layers", 28)
        return [GLOBAL if layer < first else LOCAL for layer in range(n_layers)]

    def write(self, facts: Facts):
        fields = super().write(facts)
        kinds = [*fields["layer_types"], LOCAL]  # versions before layer_types know only from which layer on
        return fields | {"use_sliding_window": LOCAL in kinds[:-1], "max_window_layers": kinds.index(LOCAL)}
