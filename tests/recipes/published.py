"""Published architectures as transformers knows them: the config.json of the hub, and the model that it describes.

A config holds what concerns the architecture; what it leaves out is transformers' default, as on the hub.
"""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports transformers

from functools import cache
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM


def gpt2(width: int, layers: int, heads: int) -> dict[str, Any]:
    sizes = {"n_embd": width, "n_layer": layers, "n_head": heads, "n_positions": 1024, "vocab_size": 50257}
    return {"model_type": "gpt2", **sizes, "activation_function": "gelu_new"}


def decoder(model_type: str, width: int, layers: int, heads: int, inner: int, **others: Any) -> dict[str, Any]:
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    return {"model_type": model_type, **sizes, "intermediate_size": inner, **others}


def pythia(width: int, layers: int, heads: int, rows: int = 50304) -> dict[str, Any]:
    stated = {"rotary_pct": 0.25, "rotary_emb_base": 10000, "max_position_embeddings": 2048, "vocab_size": rows}
    return decoder("gpt_neox", width, layers, heads, 4 * width, **stated, hidden_act="gelu", tie_word_embeddings=False)


def llama(width: int, layers: int, heads: int, inner: int, factor: float | None = None) -> dict[str, Any]:
    """Llama 3; with a factor 3.1 or 3.2."""
    stated = {"num_key_value_heads": 8, "vocab_size": 128256, "rope_theta": 500000.0, "rms_norm_eps": 1e-5}
    bands = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    scaling = factor and {"rope_type": "llama3", "factor": factor, **bands}
    length = 131072 if factor else 8192
    stated |= {"rope_scaling": scaling, "max_position_embeddings": length, "tie_word_embeddings": width < 4096}
    return decoder("llama", width, layers, heads, inner, **stated)


def qwen3(width: int, layers: int, heads: int, inner: int) -> dict[str, Any]:
    stated = {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "rope_theta": 1000000}
    stated |= {
        "max_position_embeddings": 40960,
        "tie_word_embeddings": width < 4096,
    }  # prompts of 8192, answers of 32768
    return decoder("qwen3", width, layers, heads, inner, **stated)


def gemma2(width: int, layers: int, heads: int, kv_heads: int, inner: int, head: int, scalar: int) -> dict[str, Any]:
    stated = {"num_key_value_heads": kv_heads, "head_dim": head, "query_pre_attn_scalar": scalar, "vocab_size": 256000}
    stated |= {"sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    return decoder("gemma2", width, layers, heads, inner, **stated, max_position_embeddings=8192)


def gemma3(
    width: int, layers: int, heads: int, kv_heads: int, inner: int, head: int = 256, scalar: int = 256
) -> dict[str, Any]:
    """The `text_config` of 4B, 12B and 27B."""
    stated = {"num_key_value_heads": kv_heads, "head_dim": head, "query_pre_attn_scalar": scalar, "vocab_size": 262208}
    stated |= {"sliding_window": 1024, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0}
    stated |= {"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "max_position_embeddings": 131072}
    return decoder("gemma3_text", width, layers, heads, inner, **stated)


def olmo2(width: int, layers: int, heads: int, inner: int, kv_heads: int | None = None) -> dict[str, Any]:
    stated = {"num_key_value_heads": kv_heads or heads, "vocab_size": 100352, "rope_theta": 500000}
    stated |= {"rms_norm_eps": 1e-6, "max_position_embeddings": 4096, "tie_word_embeddings": False}
    return decoder("olmo2", width, layers, heads, inner, **stated)


MISTRAL = {"num_key_value_heads": 8, "vocab_size": 32000, "sliding_window": 4096, "rope_theta": 10000.0}
MISTRAL |= {"rms_norm_eps": 1e-5, "tie_word_embeddings": False, "max_position_embeddings": 32768}
SMALL_GEMMA3 = {"vocab_size": 262144, "sliding_window": 512, "rope_scaling": None, "max_position_embeddings": 32768}

MIXTRAL = {"num_key_value_heads": 8, "vocab_size": 32000, "rope_theta": 1000000.0, "max_position_embeddings": 32768}
MIXTRAL |= {"num_local_experts": 8, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.02}
QWEN3_MOE = {"num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "rope_theta": 1000000.0}
QWEN3_MOE |= {"max_position_embeddings": 40960, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True}
QWEN3_MOE |= {"moe_intermediate_size": 768, "router_aux_loss_coef": 0.001, "tie_word_embeddings": False}
OLMOE = {"num_key_value_heads": 16, "vocab_size": 50304, "rope_theta": 10000.0, "max_position_embeddings": 4096}
OLMOE |= {"num_experts": 64, "num_experts_per_tok": 8, "router_aux_loss_coef": 0.01, "norm_topk_prob": False}
STRETCHED = {"rope_type": "yarn", "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 4096}
DEEPSEEK = {"num_key_value_heads": 128, "vocab_size": 129280, "q_lora_rank": 1536, "kv_lora_rank": 512}
DEEPSEEK |= {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "first_k_dense_replace": 3}
DEEPSEEK |= {"n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048}
DEEPSEEK |= {"n_group": 8, "topk_group": 4, "norm_topk_prob": True, "routed_scaling_factor": 2.5}
DEEPSEEK |= {"rope_scaling": STRETCHED | {"factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0}}
DEEPSEEK |= {"rope_theta": 10000.0, "max_position_embeddings": 163840, "tie_word_embeddings": False}
GPT_OSS = {"num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088, "sliding_window": 128}
GPT_OSS |= {"num_local_experts": 32, "num_experts_per_tok": 4, "swiglu_limit": 7.0, "router_aux_loss_coef": 0.9}
GPT_OSS |= {"rope_scaling": STRETCHED | {"factor": 32.0, "truncate": False}, "rope_theta": 150000.0}
GPT_OSS |= {"max_position_embeddings": 131072, "tie_word_embeddings": False}

PUBLISHED = {
    "gpt2": gpt2(768, 12, 12),
    "gpt2_medium": gpt2(1024, 24, 16),
    "gpt2_large": gpt2(1280, 36, 20),
    "gpt2_xl": gpt2(1600, 48, 25),
    "pythia_70m": pythia(512, 6, 8),
    "pythia_160m": pythia(768, 12, 12),
    "pythia_410m": pythia(1024, 24, 16),
    "pythia_1b": pythia(2048, 16, 8),
    "pythia_1.4b": pythia(2048, 24, 16),
    "pythia_2.8b": pythia(2560, 32, 32),
    "pythia_6.9b": pythia(4096, 32, 32, 50432),
    "pythia_12b": pythia(5120, 36, 40, 50688),
    "llama3_8b": llama(4096, 32, 32, 14336),
    "llama3_70b": llama(8192, 80, 64, 28672),
    "llama3_405b": llama(16384, 126, 128, 53248, factor=8.0),
    "llama3_1b": llama(2048, 16, 32, 8192, factor=32.0),
    "llama3_3b": llama(3072, 28, 24, 8192, factor=32.0),
    "mistral_7b": decoder("mistral", 4096, 32, 32, 14336, **MISTRAL),
    "qwen3_0.6b": qwen3(1024, 28, 16, 3072),
    "qwen3_1.7b": qwen3(2048, 28, 16, 6144),
    "qwen3_4b": qwen3(2560, 36, 32, 9728),
    "qwen3_8b": qwen3(4096, 36, 32, 12288),
    "qwen3_14b": qwen3(5120, 40, 40, 17408),
    "qwen3_32b": qwen3(5120, 64, 64, 25600),
    "gemma2_2b": gemma2(2304, 26, 8, 4, 9216, 256, 256),
    "gemma2_9b": gemma2(3584, 42, 16, 8, 14336, 256, 256),
    "gemma2_27b": gemma2(4608, 46, 32, 16, 36864, 128, 144),
    "gemma3_1b": gemma3(1152, 26, 4, 1, 6912) | SMALL_GEMMA3,
    "gemma3_4b": gemma3(2560, 34, 8, 4, 10240),
    "gemma3_12b": gemma3(3840, 48, 16, 8, 15360),
    "gemma3_27b": gemma3(5376, 62, 32, 16, 21504, 128, 168),
    "olmo2_1b": olmo2(2048, 16, 16, 8192),
    "olmo2_7b": olmo2(4096, 32, 32, 11008),
    "olmo2_13b": olmo2(5120, 40, 40, 13824),
    "olmo2_32b": olmo2(5120, 64, 40, 27648, 8),
    "mixtral_8x7b": decoder("mixtral", 4096, 32, 32, 14336, **MIXTRAL),
    "qwen3_30b_a3b": decoder("qwen3_moe", 2048, 48, 32, 6144, **QWEN3_MOE),
    "olmoe_1b_7b": decoder("olmoe", 2048, 16, 16, 1024, **OLMOE),
    "deepseek_v3": decoder("deepseek_v3", 7168, 61, 128, 18432, **DEEPSEEK),
    "gpt_oss_20b": decoder("gpt_oss", 2880, 24, 64, 2880, **GPT_OSS),
}


@cache
def sizes(name: str) -> dict[str, int]:
    """The parameters of the model of transformers by name, a tied table once; nothing is allocated."""
    config = AutoConfig.for_model(**PUBLISHED[name])
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return {name: weight.numel() for name, weight in model.named_parameters()}


def parameters(name: str) -> int:
    """How many there are."""
    return sum(sizes(name).values())


def active(name: str) -> int:
    """How many of them one token meets: of stacked experts as many as it goes to."""
    experts = sum(size for key, size in sizes(name).items() if ".mlp.experts." in key)
    config = AutoConfig.for_model(**PUBLISHED[name])
    met = experts * config.num_experts_per_tok // config.num_local_experts if experts else 0
    return parameters(name) - experts + met
