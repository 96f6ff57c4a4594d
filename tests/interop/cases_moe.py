"""Tiny models of transformers with experts, as in cases.py: one for each variant that a family's tables tell apart."""

import transformers as tf

from tests.interop.cases import FAR, LLAMA, NEAR, TIED, YARN

MIXTRAL = LLAMA | {"num_local_experts": 4}
SMALL = LLAMA | {"num_experts": 6, "num_experts_per_tok": 2}
QWEN = SMALL | {"moe_intermediate_size": 20}
BETWEEN = {"num_hidden_layers": 5, "decoder_sparse_step": 2, "mlp_only_layers": [3]}  # experts in layer 1 alone
DEEPSEEK = LLAMA | {
    **{"num_key_value_heads": 4, "num_hidden_layers": 3, "first_k_dense_replace": 1},
    **{"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "n_group": 4, "topk_group": 2},
    **{"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 10, "qk_rope_head_dim": 8, "v_head_dim": 12},
}
STRETCHED = YARN | {"original_max_position_embeddings": 16, "rope_theta": 500.0}
HALFWAY = STRETCHED | {"factor": 2.0, "original_max_position_embeddings": 32}  # its ramp ends between two pairs
GPT_OSS = LLAMA | {
    **{"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 12, "sliding_window": 4, "num_hidden_layers": 3},
    **{"rope_parameters": HALFWAY | {"truncate": False}, "swiglu_limit": 0.5},
}
MIXTURES = {
    "mixtral": (tf.MixtralConfig, MIXTRAL),
    "mixtral window, three of five, wide heads, tied, unbalanced": (
        tf.MixtralConfig,
        MIXTRAL
        | TIED
        | {"sliding_window": 4, "num_local_experts": 5, "num_experts_per_tok": 3, "head_dim": 12}
        | {"router_aux_loss_coef": 0.0, "router_jitter_noise": 0.1, "hidden_act": "gelu"},
    ),
    "qwen3_moe": (tf.Qwen3MoeConfig, QWEN | {"norm_topk_prob": True, "head_dim": 12}),
    "qwen3_moe dense layers between, window, biases, tied": (
        tf.Qwen3MoeConfig,
        QWEN | TIED | BETWEEN | {"use_sliding_window": True, "sliding_window": 4, "attention_bias": True},
    ),
    "qwen3_moe without experts": (tf.Qwen3MoeConfig, QWEN | {"mlp_only_layers": [0, 1]}),
    "olmoe": (tf.OlmoeConfig, SMALL),
    "olmoe tied, biases, renormalised": (
        tf.OlmoeConfig,
        SMALL | TIED | {"attention_bias": True, "norm_topk_prob": True, "num_key_value_heads": None},
    ),
    "qwen2_moe": (tf.Qwen2MoeConfig, QWEN | {"shared_expert_intermediate_size": 28}),
    "qwen2_moe windows below, dense layers between, no biases, tied": (
        tf.Qwen2MoeConfig,
        QWEN
        | TIED
        | BETWEEN
        | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 4, "qkv_bias": False}
        | {"shared_expert_intermediate_size": 28, "norm_topk_prob": True},
    ),
    "deepseek_v3": (tf.DeepseekV3Config, DEEPSEEK),
    "deepseek_v3 stretched": (
        tf.DeepseekV3Config,
        DEEPSEEK | {"rope_parameters": STRETCHED | {"mscale": 1.0, "mscale_all_dim": 0.7}, "first_k_dense_replace": 0},
    ),
    "deepseek_v3 whole queries, halves, one group, two shared, tied": (
        tf.DeepseekV3Config,
        DEEPSEEK
        | TIED
        | {"q_lora_rank": None, "rope_interleave": False, "n_group": 1, "topk_group": 1, "n_shared_experts": 2}
        | {"norm_topk_prob": False, "routed_scaling_factor": 1.0, "hidden_act": "gelu"},
    ),
    "gpt_oss": (tf.GptOssConfig, GPT_OSS),
    "gpt_oss whole pairs, no biases, far layers only, tied": (
        tf.GptOssConfig,
        GPT_OSS
        | TIED
        | {"attention_bias": False, "layer_types": [FAR] * 3, "rope_parameters": HALFWAY, "swiglu_limit": 7.0},
    ),
    "gpt_oss unstretched, near layers last": (
        tf.GptOssConfig,
        GPT_OSS
        | {"layer_types": [FAR, NEAR, NEAR]}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    ),
}
