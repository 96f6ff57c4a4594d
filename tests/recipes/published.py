"""Published architectures as transformers knows them: the config.json of the hub, and the model that it describes.

A config holds what concerns the architecture; what it leaves out is transformers' default, as on the hub.
"""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports transformers

from functools import cache
from typing import Any

import torch
import transformers
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


def mamba(width: int, layers: int) -> dict[str, Any]:
    return {"model_type": "mamba", "hidden_size": width, "num_hidden_layers": layers, "vocab_size": 50280}


def mamba2(width: int, layers: int) -> dict[str, Any]:
    stated = {"num_heads": width // 32, "head_dim": 64, "n_groups": 1, "vocab_size": 50288, "tie_word_embeddings": True}
    return mamba(width, layers) | {"model_type": "mamba2", **stated}


def zamba2(width: int, hybrid: list[int], layers: int, **others: Any) -> dict[str, Any]:
    """`hybrid` are the layers that read one of two blocks, in turns."""
    kinds = ["hybrid" if layer in hybrid else "mamba" for layer in range(layers)]
    stated = {"layers_block_type": kinds, "num_mem_blocks": 2, "adapter_rank": 128, "n_mamba_heads": width // 32}
    stated |= {"mamba_d_state": 64, "vocab_size": 32000, "max_position_embeddings": 4096}
    return decoder("zamba2", width, layers, 32, 4 * width, **stated, **others)


def recurrent_gemma(width: int, layers: int, heads: int) -> dict[str, Any]:
    stated = {"num_key_value_heads": 1, "head_dim": 256, "lru_width": width, "vocab_size": 256000}
    stated |= {"attention_window_size": 2048, "conv1d_width": 4, "logits_soft_cap": 30.0, "rope_theta": 10000.0}
    stated |= {"_block_types": ["recurrent", "recurrent", "attention"], "embeddings_scale_by_sqrt_dim": True}
    return decoder("recurrent_gemma", width, layers, heads, 6 * width, **stated, partial_rotary_factor=0.5)


def bert(width: int, layers: int, heads: int, **others: Any) -> dict[str, Any]:
    """The model that words are masked for, as `others` doesn't say something else."""
    stated = {"vocab_size": 30522, "hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2}
    stated |= {"layer_norm_eps": 1e-12, "architectures": ["BertForMaskedLM"]}
    return decoder("bert", width, layers, heads, 4 * width, **stated) | others


def two_towers(model_type: str, width: int, layers: int, heads: int, inner: int, **others: Any) -> dict[str, Any]:
    """BART and Marian."""
    sizes = {f"{tower}_layers": layers for tower in ("encoder", "decoder")}
    sizes |= {f"{tower}_attention_heads": heads for tower in ("encoder", "decoder")}
    sizes |= {f"{tower}_ffn_dim": inner for tower in ("encoder", "decoder")}
    return {"model_type": model_type, "d_model": width, **sizes, "dropout": 0.1, **others}


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
FALCON_MAMBA = {"state_size": 16, "expand": 16, "intermediate_size": 8192, "time_step_rank": 256, "vocab_size": 65024}
FALCON_MAMBA |= {"model_type": "falcon_mamba", "tie_word_embeddings": False}
BAMBA = {"num_key_value_heads": 8, "vocab_size": 128256, "attn_layer_indices": [9, 18, 27], "attn_rotary_emb": 64}
BAMBA |= {"mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_n_heads": 128, "rms_norm_eps": 1e-5}
JAMBA = {"num_key_value_heads": 8, "vocab_size": 65536, "attn_layer_period": 8, "attn_layer_offset": 4}
JAMBA |= {"expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 16, "num_experts_per_tok": 2}
JAMBA |= {"mamba_d_state": 16, "mamba_dt_rank": 256, "router_aux_loss_coef": 0.001, "rms_norm_eps": 1e-6}
QWEN3_NEXT = {"num_key_value_heads": 2, "head_dim": 256, "vocab_size": 151936, "rope_theta": 10000000.0}
QWEN3_NEXT |= {"linear_num_value_heads": 32, "linear_num_key_heads": 16, "linear_conv_kernel_dim": 4}
QWEN3_NEXT |= {"linear_key_head_dim": 128, "linear_value_head_dim": 128, "full_attention_interval": 4}
QWEN3_NEXT |= {"num_experts": 512, "num_experts_per_tok": 10, "norm_topk_prob": True, "partial_rotary_factor": 0.25}
QWEN3_NEXT |= {"moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "router_aux_loss_coef": 0.001}
QWEN3_NEXT |= {"max_position_embeddings": 262144, "tie_word_embeddings": False}
FALCON_H1 = {"num_key_value_heads": 2, "head_dim": 64, "vocab_size": 32784, "rope_theta": 1e11, "rms_norm_eps": 1e-5}
FALCON_H1 |= {"mamba_d_ssm": 1536, "mamba_n_heads": 24, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1}
FALCON_H1 |= {"mamba_norm_before_gate": False, "mamba_rms_norm": False, "max_position_embeddings": 16384}
FALCON_H1 |= {"attention_in_multiplier": 1.0, "attention_out_multiplier": 0.9375, "key_multiplier": 0.39062499999999994}
FALCON_H1 |= {"ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.23570226039551587, "lm_head_multiplier": 0.0390625}
FALCON_H1 |= {"embedding_multiplier": 5.656854249492381, "mlp_multipliers": [0.8838834764831844, 0.5859375]}
FALCON_H1 |= {"ssm_multipliers": [0.3535533905932738, 0.25, 0.3535533905932738, 0.5, 0.3535533905932738]}
FALCON_H1_DEEP = {"num_key_value_heads": 2, "head_dim": 128, "vocab_size": 65537, "rope_theta": 1e11}
FALCON_H1_DEEP |= {"mamba_d_ssm": 1536, "mamba_n_heads": 24, "mamba_d_head": 64, "mamba_d_state": 256}
FALCON_H1_DEEP |= {"mamba_norm_before_gate": False, "mamba_rms_norm": True, "max_position_embeddings": 131072}
FALCON_H1_DEEP |= {"attention_out_multiplier": 0.5, "key_multiplier": 0.17677669529663687, "mamba_n_groups": 1}
FALCON_H1_DEEP |= {"ssm_out_multiplier": 0.23570226039551587, "lm_head_multiplier": 0.03125, "rms_norm_eps": 1e-5}
FALCON_H1_DEEP |= {"embedding_multiplier": 5.656854249492381, "mlp_multipliers": [0.7071067811865476, 0.3125]}
FALCON_H1_DEEP |= {"ssm_multipliers": [0.3535533905932738, 0.25, 0.1767766952966369, 0.5, 0.3535533905932738]}

ROBERTA = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
ROBERTA |= {"model_type": "roberta", "pad_token_id": 1, "architectures": ["RobertaForMaskedLM"]}
DISTILBERT = {"model_type": "distilbert", "dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072}
DISTILBERT |= {"vocab_size": 30522, "activation": "gelu", "architectures": ["DistilBertForMaskedLM"]}
MODERNBERT = {"vocab_size": 50368, "global_attn_every_n_layers": 3, "local_attention": 128, "norm_eps": 1e-5}
MODERNBERT |= {"global_rope_theta": 160000.0, "local_rope_theta": 10000.0, "max_position_embeddings": 8192}
MODERNBERT |= {"hidden_activation": "gelu", "architectures": ["ModernBertForMaskedLM"]}
T5 = {"model_type": "t5", "d_kv": 64, "d_ff": 2048, "vocab_size": 32128, "dropout_rate": 0.1, "n_positions": 512}
T5 |= {"architectures": ["T5ForConditionalGeneration"], "relative_attention_num_buckets": 32}
BART = {"vocab_size": 50265, "max_position_embeddings": 1024, "attention_dropout": 0.1, "activation_dropout": 0.1}
BART |= {"activation_function": "gelu", "scale_embedding": False, "architectures": ["BartForConditionalGeneration"]}
MARIAN = {"vocab_size": 58101, "max_position_embeddings": 512, "activation_function": "swish", "scale_embedding": True}
MARIAN |= {"static_position_embeddings": True, "pad_token_id": 58100, "architectures": ["MarianMTModel"]}
MINILM = {"architectures": ["BertModel"], "beside": {"pooling": "mean", "normalise": True}}
"""`beside` is what other files of its folder say."""

PUBLISHED = {
    "bert_base": bert(768, 12, 12),
    "bert_large": bert(1024, 24, 16),
    "roberta_base": bert(768, 12, 12, **ROBERTA),
    "distilbert_base": DISTILBERT,
    "modernbert_base": decoder("modernbert", 768, 22, 12, 1152, **MODERNBERT),
    "all_minilm_l6": bert(384, 6, 12, **MINILM),
    "t5_small": T5 | {"d_model": 512, "num_layers": 6, "num_heads": 8},
    "t5_v1_1_base": T5
    | {"d_model": 768, "num_layers": 12, "num_heads": 12, "feed_forward_proj": "gated-gelu"}
    | {"tie_word_embeddings": False},
    "bart_base": two_towers("bart", 768, 6, 12, 3072, **BART),
    "marian_en_de": two_towers("marian", 512, 6, 8, 2048, **MARIAN),
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
    "mamba_130m": mamba(768, 24),
    "mamba_370m": mamba(1024, 48),
    "mamba_1.4b": mamba(2048, 48),
    "mamba_2.8b": mamba(2560, 64),
    "mamba2_130m": mamba2(768, 24),
    "mamba2_2.7b": mamba2(2560, 64),
    "falcon_mamba_7b": mamba(4096, 64) | FALCON_MAMBA,
    "bamba_9b": decoder("bamba", 4096, 32, 32, 14336, **BAMBA),
    "jamba_v0.1": decoder("jamba", 4096, 32, 32, 14336, **JAMBA),
    "zamba2_2.7b": zamba2(2560, [6, 12, 18, 24, 30, 36, 42, 47, 51], 54),
    "zamba2_7b": zamba2(3584, [6, *range(11, 78, 6)], 81, mamba_ngroups=2, use_mem_rope=True),
    "qwen3_next_80b_a3b": decoder("qwen3_next", 2048, 48, 16, 5120, **QWEN3_NEXT),
    "recurrent_gemma_2b": recurrent_gemma(2560, 26, 10),
    "recurrent_gemma_9b": recurrent_gemma(4096, 38, 16),
    "falcon_h1_0.5b": decoder("falcon_h1", 1024, 36, 8, 2048, **FALCON_H1),
    "falcon_h1_1.5b_deep": decoder("falcon_h1", 1280, 66, 6, 3072, **FALCON_H1_DEEP),
}


@cache
def sizes(name: str) -> dict[str, int]:
    """The parameters of the model of transformers by name, a tied table once; nothing is allocated."""
    stated = PUBLISHED[name]
    config = AutoConfig.for_model(**stated)
    with torch.device("meta"):
        if "architectures" in stated:
            model = getattr(transformers, stated["architectures"][0])(config)
        else:
            model = AutoModelForCausalLM.from_config(config)
    found = {name: weight.numel() for name, weight in model.named_parameters() if weight.requires_grad}
    found = {name: size for name, size in found.items() if "beside" not in stated or not name.startswith("pooler.")}
    if stated["model_type"] == "t5" and not stated.get("tie_word_embeddings", True):
        found["lm_head.weight"] = model.lm_head.weight.numel()  # a file that holds one is loaded with it
    if stated["model_type"] == "marian":
        found["final_logits_bias"] = model.final_logits_bias.numel()  # trained by Marian, and kept as a buffer
    return found


def parameters(name: str) -> int:
    """How many there are."""
    return sum(sizes(name).values())


def active(name: str) -> int:
    """How many of them one token meets: of stacked experts as many as it goes to."""
    experts = sum(size for key, size in sizes(name).items() if ".experts." in key)
    config = AutoConfig.for_model(**PUBLISHED[name])
    there = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", 1)
    met = experts * config.num_experts_per_tok // there if experts else 0
    return parameters(name) - experts + met
