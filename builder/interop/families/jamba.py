"""Jamba (Lieber et al. 2024): Mamba layers with norms inside, an attention without positions between, and experts."""

from __future__ import annotations

from typing import Any

from builder.interop.facts import Facts
from builder.interop.field import Field, Multiple
from builder.interop.hf_config import ANY, HFConfig
from builder.interop.hybrid import Hybrid, attending, round_of
from builder.interop.mixture import ROUTED, Mixture, balanced, experts
from builder.interop.rule import Rule

from .bamba import AROUND, COUNTED, STREAM
from .llama import Llama
from .mamba import COMPUTED, RANK, SILU, selective

_PERIODS = {"attn_layer": (8, 4), "expert_layer": (2, 1)}


class Jamba(Mixture, Hybrid):
    """transformers.JambaForCausalLM; layer i is of a kind where i modulo the kind's period is the kind's offset."""

    model_type = "jamba"
    architecture = "JambaForCausalLM"
    base = Llama.base
    fixed = {
        **Llama.fixed,
        "position": {"name": "none"},
        "ssm": {"name": "mamba", "norm": {"name": "rmsnorm"}},
        "moe": {"name": "moe", "expert": {"name": "glu"}, "router": {"name": "topk", "weights": "plain"}},
    }
    fields = (
        *STREAM,
        Multiple("ssm.d_inner", "mamba_expand", 2),
        Field("ssm.d_state", "mamba_d_state", 16),
        Field("ssm.dt_rank", "mamba_dt_rank", "auto", RANK),
        Field("ssm.bias", "mamba_proj_bias", False),
        Field("moe.n_experts", ("num_experts", "num_local_experts"), 16),
        Field("moe.top_k", "num_experts_per_tok", 2),
        balanced(0.001),
        Field(("ffn.d_ff", "moe.expert.d_ff"), "intermediate_size", 14336),
        Field(("ffn.activation", "moe.expert.activation"), "hidden_act", "silu", SILU),
        Field(("norm.eps", "ssm.norm.eps"), "rms_norm_eps", 1e-6),
    )
    neutral = {
        **ROUTED,
        **COUNTED,
        **COMPUTED,
        "use_mamba_kernels": ANY,
        # what the published files say beside it, and transformers takes for granted
        "mamba_inner_layernorms": (True,),
        **dict.fromkeys(("calc_logits_for_entire_prompt", "n_ctx"), ANY),
    }
    rules = (
        *AROUND,
        *selective("model.layers.{n}.mamba", norms=True),
        Rule("model.layers.{n}.feed_forward.router", "layers.{n}.ffn.router"),
        *experts("feed_forward"),
    )

    def attends(self, config: HFConfig, n_layers: int) -> list[bool]:
        return _every(config, "attn_layer", n_layers)

    def sparse(self, config: HFConfig, n_layers: int) -> list[bool]:
        several = config.get("num_experts", config.get("num_local_experts", 16)) > 1
        return [several and sparse for sparse in _every(config, "expert_layer", n_layers)]

    def write(self, facts: Facts):
        sparse = [name is not None for name in facts.each("moe.name")]
        periods = _stated("attn_layer", attending(facts)) | _stated("expert_layer", sparse)
        return super().write(facts) | periods


def _every(config: HFConfig, kind: str, n_layers: int) -> list[bool]:
    """Whether each layer is of a kind."""
    period, offset = config.get(f"{kind}_period", _PERIODS[kind][0]), config.get(f"{kind}_offset", _PERIODS[kind][1])
    if type(period) is not int or period < 1:
        config.refuse(f"{kind}_period", "a whole number of at least 1", "1")
    elif type(offset) is not int or not 0 <= offset < period:
        config.refuse(f"{kind}_offset", f"a whole number from 0 to less than {kind}_period={period}", "0")
    config.judge()
    return [layer % period == offset for layer in range(n_layers)]


def _stated(kind: str, layers: list[bool]) -> dict[str, Any]:
    """The fields that say which layers are of a kind; none, if no period does."""
    found = round_of(layers)
    return {} if found is None else {f"{kind}_period": found[0], f"{kind}_offset": found[1]}
