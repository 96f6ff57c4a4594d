"""Qwen3-Next (Qwen Team 2025): three layers of gated delta rule to one of gated attention, experts in most or all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from builder.interop.facts import Facts
from builder.interop.field import ACTIVATION, FLAG, Field
from builder.interop.form import Depthwise, Form, Grouped, Rows
from builder.interop.hf_config import HFConfig
from builder.interop.hybrid import Hybrid, attending
from builder.interop.mixture import RENORMALISED, ROUTED, SHARED, Stepped, balanced, beside, experts
from builder.interop.rope import Rope
from builder.interop.rule import Rule

from .llama import AROUND, STREAM, Llama, layer_norms

_Mixer = tuple[str, tuple[str, ...], Form]
_KINDS = {"linear_attention": False, "full_attention": True}


class Qwen3Next(Stepped, Hybrid):
    """transformers.Qwen3NextForCausalLM; the layers that predict tokens further on stay behind in its files."""

    model_type = "qwen3_next"
    architecture = "Qwen3NextForCausalLM"
    base = Llama.base
    fixed = {
        **Llama.fixed,
        "norm": {"name": "rmsnorm", "unit_offset": True},
        "attention": {"name": "gqa", "gate": True, "qk_norm": {"name": "rmsnorm", "unit_offset": True}},
        "ssm": {"name": "gated_delta", "norm": {"name": "rmsnorm"}},
        "moe": SHARED,
    }
    fields = (
        *STREAM,
        Field("ffn.d_ff", "intermediate_size", 5632),
        Field("attention.n_kv_heads", "num_key_value_heads", 2),
        Field("attention.d_head", "head_dim", 256),
        Field("attention.bias", "attention_bias", False, FLAG),
        Field("ssm.n_heads", "linear_num_value_heads", 32),
        Field("ssm.n_key_heads", "linear_num_key_heads", 16),
        Field("ssm.d_key", "linear_key_head_dim", 128),
        Field("ssm.d_value", "linear_value_head_dim", 128),
        Field("ssm.d_conv", "linear_conv_kernel_dim", 4),
        Field("moe.n_experts", "num_experts", 512),
        Field("moe.top_k", "num_experts_per_tok", 10),
        Field("moe.expert.d_ff", "moe_intermediate_size", 512),
        Field("moe.shared.d_ff", "shared_expert_intermediate_size", 512),
        Field(("ffn.activation", "moe.shared.activation", "moe.expert.activation"), "hidden_act", "silu", ACTIVATION),
        Field("moe.router.weights", "norm_topk_prob", True, RENORMALISED),
        balanced(0.001),
        Field(("norm.eps", "attention.qk_norm.eps", "ssm.norm.eps"), "rms_norm_eps", 1e-6),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 32768),
        Field("tie_embeddings", "tie_word_embeddings", False),
        Rope(fraction=0.25),
    )
    neutral = ROUTED
    rules = (
        *AROUND,
        *layer_norms(mixer_norm="input", ffn_norm="post_attention"),
        Rule("model.layers.{n}.mlp.gate", "layers.{n}.ffn.router"),
        *experts(),
        *beside("shared_expert"),
        Rule("model.layers.{n}.mlp.shared_expert_gate", "layers.{n}.ffn.shared_gate"),
    )
    ignorable = (*Llama.ignorable, r"(model\.)?mtp\..*")

    def attends(self, config: HFConfig, n_layers: int) -> Sequence[bool]:
        stated, period = config.get("layer_types"), config.get("full_attention_interval", 4)
        if not isinstance(period, int) or isinstance(period, bool) or period < 1:
            config.refuse("full_attention_interval", "a whole number of at least 1", "4")
            period = 4
        if stated is None:
            return [(layer + 1) % period == 0 for layer in range(n_layers)]
        if not (isinstance(stated, list) and len(stated) == n_layers and all(kind in _KINDS for kind in stated)):
            config.refuse("layer_types", f"{' or '.join(_KINDS)} for each of {n_layers} layers", "a model of these two")
            config.judge()
        return [_KINDS[kind] for kind in stated]

    def write(self, facts: Facts) -> dict[str, Any]:
        names = {attends: kind for kind, attends in _KINDS.items()}
        return super().write(facts) | {"layer_types": [names[attends] for attends in attending(facts)]}

    def tensors(self, facts: Facts) -> Iterable[Rule]:
        yield from self.rules
        mixers = {True: [*_attention(facts)], False: [*_delta(facts)]}
        for layer, attends in enumerate(attending(facts)):  # ours have names in common, such as q
            for theirs, ours, form in mixers[attends]:
                names = tuple(f"layers.{layer}.mixer.{name}" for name in ours)
                yield Rule(f"model.layers.{layer}.{theirs}", names, form)


def _attention(facts: Facts) -> Iterator[_Mixer]:
    """Each head's query, then its gate."""
    yield "self_attn.q_proj", ("q", "gate"), Grouped(facts.get("attention.d_head", 1))
    for name, theirs in {"k": "k_proj", "v": "v_proj", "o": "o_proj", "q_norm": "q_norm", "k_norm": "k_norm"}.items():
        yield f"self_attn.{theirs}", (name,), Rows()


def _delta(facts: Facts) -> Iterator[_Mixer]:
    """Each key head's query and key, then the values and gates that it serves; each one's betas, then its steps."""
    key, served = facts.get("ssm.d_key", 1), facts.get("ssm.n_heads", 1) // facts.get("ssm.n_key_heads", 1)
    yield "linear_attn.in_proj_qkvz", ("q", "k", "v", "gate"), Grouped(key)
    yield "linear_attn.in_proj_ba", ("beta", "dt"), Grouped(served)
    yield "linear_attn.conv1d", ("conv",), Depthwise()
    for theirs, name in {"dt_bias": "dt.bias", "A_log": "a_log", "norm": "norm", "out_proj": "o"}.items():
        yield f"linear_attn.{theirs}", (name,), Rows()
