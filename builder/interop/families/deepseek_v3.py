"""DeepSeek-V3 (DeepSeek-AI 2024): latent attention, experts in groups, balanced by a preference and no loss."""

from __future__ import annotations

import math
from typing import Any

from builder.interop.facts import Facts
from builder.interop.field import ACTIVATION, Choice, Field
from builder.interop.hf_config import ANY, HFConfig
from builder.interop.mixture import RENORMALISED, ROUTED, Mixture, beside, experts
from builder.interop.rope import Rope
from builder.interop.rule import Rule

from .llama import AROUND, STREAM, Llama, layer_norms

_THEIRS, _OURS = "model.layers.{n}", "layers.{n}"
_LATENTS = {"q_a_proj": "q_a", "q_a_layernorm": "q_norm", "kv_a_proj_with_mqa": "kv_a", "kv_a_layernorm": "kv_norm"}
_LATENTS |= {"kv_b_proj": "kv_b", "o_proj": "o"}
_ONE_GROUP = {"n_group": 1, "topk_group": 1}


class DeepseekV3(Mixture):
    """transformers.DeepseekV3ForCausalLM.

    Its code multiplies the scores by what YaRN's `mscale_all_dim` says; here that is in `attention.scale`.
    """

    model_type = "deepseek_v3"
    architecture = "DeepseekV3ForCausalLM"
    base = Llama.base
    fixed = {
        **Llama.fixed,
        "attention": {"name": "mla", "norm": {"name": "rmsnorm", "eps": 1e-6}},  # whatever the model's own eps
        "moe": {
            "name": "moe",
            "expert": {"name": "glu"},
            "shared": {"name": "glu"},
            "router": {"name": "grouped_topk", "score": "sigmoid", "group_score": "two"},
            "balance": {"aux_loss": 0.0, "bias_speed": 0.001},
        },
    }
    fields = (
        *STREAM,
        Field("ffn.d_ff", "intermediate_size", 18432),
        Field("attention.q_rank", "q_lora_rank", 1536, nullable=True),
        Field("attention.kv_rank", "kv_lora_rank", 512),
        Field("attention.d_head", "qk_nope_head_dim", 128),
        Field("attention.d_rope", "qk_rope_head_dim", 64),
        Field("attention.d_value", "v_head_dim", 128),
        Field("moe.n_experts", ("n_routed_experts", "num_local_experts"), 256),
        Field("moe.top_k", "num_experts_per_tok", 8),
        Field("moe.expert.d_ff", "moe_intermediate_size", 2048),
        Field(("ffn.activation", "moe.shared.activation", "moe.expert.activation"), "hidden_act", "silu", ACTIVATION),
        Field("moe.router.n_groups", "n_group", 8),
        Field("moe.router.top_groups", "topk_group", 4),
        Field("moe.router.weights", "norm_topk_prob", True, RENORMALISED),
        Field("moe.scale", "routed_scaling_factor", 2.5),
        Field("norm.eps", "rms_norm_eps", 1e-6),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 4096),
        Field("tie_embeddings", "tie_word_embeddings", False),
        Rope(fraction=None),
        Field("position.pairing", "rope_interleave", True, Choice({True: "interleaved", False: "half"})),
    )
    neutral = {
        **ROUTED,
        "attention_bias": (False,),
        "pretraining_tp": ANY,  # in how many pieces a product is computed
        **dict.fromkeys(("head_dim", "qk_head_dim"), ANY),  # computed anew from the others
        # what the published files say beside it, and transformers takes for granted
        "moe_layer_freq": (1,),
        "scoring_func": ("sigmoid",),
        "topk_method": ("noaux_tc",),
        # of the code that trained it, and of the layers that predict further tokens, which aren't part of this model
        **dict.fromkeys(("aux_loss_alpha", "seq_aux", "ep_size", "num_nextn_predict_layers", "num_mtp_layers"), ANY),
    }
    rules = (
        *AROUND,
        *layer_norms(mixer_norm="input", ffn_norm="post_attention"),
        *(Rule(f"{_THEIRS}.self_attn.{theirs}", f"{_OURS}.mixer.{ours}") for theirs, ours in _LATENTS.items()),
        Rule(f"{_THEIRS}.mlp.gate", f"{_OURS}.ffn.router"),
        Rule(f"{_THEIRS}.mlp.gate.e_score_correction_bias", f"{_OURS}.ffn.router.preference"),
        *experts(),
        *beside("shared_experts"),
    )
    ignorable = (*Llama.ignorable, r"model\.layers\.61\..*")  # the published layer that predicts a further token

    def sparse(self, config: HFConfig, n_layers: int) -> list[bool]:
        first = config.get("first_k_dense_replace", 3)
        if not isinstance(first, int) or isinstance(first, bool) or first < 0:
            config.refuse("first_k_dense_replace", "a whole number of at least 0", "0")
            config.judge()
        return [layer >= first for layer in range(n_layers)]

    def read(self, config: HFConfig):
        section = super().read(config)
        attention = section["attention"]
        if config.get("num_key_value_heads", attention["n_heads"]) != attention["n_heads"]:
            config.refuse("num_key_value_heads", "each head has its own keys", f"{attention['n_heads']}")
        attention["scale"] = (attention["d_head"] + attention["d_rope"]) ** -0.5 * _sharpened(section["position"]) ** 2
        shared = _shared(config)  # read where no layer has it too
        return section | ({"moe": _mixture(shared, section["moe"])} if "moe" in section else {})

    def write(self, facts: Facts):
        fields = _ONE_GROUP | super().write(facts)
        dense = facts.each("moe.name").count(None)
        fields |= {"first_k_dense_replace": dense, "num_key_value_heads": facts["attention.n_heads"]}
        shared, each = facts.get("moe.shared.d_ff", 0), facts.get("moe.expert.d_ff")
        return fields | ({"n_shared_experts": shared // each} if each else {})

    def tensors(self, facts: Facts):
        queries = "q_proj" if facts["attention.q_rank"] is None else "q_b_proj"
        return (*self.rules, Rule(f"{_THEIRS}.self_attn.{queries}", f"{_OURS}.mixer.q_b"))


def _sharpened(position: dict[str, Any]) -> float:
    """What multiplies queries and keys alike, so that the scores get its square."""
    scaling = position.get("scaling", {})
    mscale, factor = scaling.get("mscale_all_dim", 0.0), scaling.get("factor", 1.0)
    if not all(isinstance(number, int | float) for number in (mscale, factor)):  # ModelSpec will refuse it by name
        return 1.0
    return 0.1 * mscale * math.log(max(factor, 1.0)) + 1.0


def _shared(config: HFConfig) -> int:
    """As how many of the others the shared expert is wide."""
    shared = config.get("n_shared_experts", 1)
    if not isinstance(shared, int) or isinstance(shared, bool) or shared < 1:
        config.refuse("n_shared_experts", "a whole number of at least 1", "1")
        config.judge()
    return shared


def _mixture(shared: int, slot: dict[str, Any]) -> dict[str, Any]:
    """The slot with its shared expert, as wide as so many of the others, and without groups where there is only one."""
    router = slot["router"]
    if router["n_groups"] == router["top_groups"] == 1:
        router = {"name": "topk", "score": router["score"], "weights": router["weights"]}
    return slot | {"router": router, "shared": slot["shared"] | {"d_ff": shared * slot["expert"]["d_ff"]}}
