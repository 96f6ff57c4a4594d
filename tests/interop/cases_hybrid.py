"""Tiny models of transformers that mix attention with states, as in cases.py: one for each variant of a family."""

import transformers as tf

from tests.interop.cases import LLAMA, TIED, UNTIED
from tests.interop.cases_moe import QWEN
from tests.interop.conftest import IDS

QWEN3_NEXT = QWEN | {
    **{"num_hidden_layers": 4, "head_dim": 16, "shared_expert_intermediate_size": 28},
    **{"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 6, "linear_value_head_dim": 5},
}
RECURRENT_GEMMA = IDS | {
    **{"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 1},
    **{"intermediate_size": 48, "attention_window_size": 4},
}
FALCON_H1 = LLAMA | {
    **{"mamba_d_ssm": 48, "mamba_n_heads": 6, "mamba_d_state": 5, "mamba_n_groups": 2},
    **{"attention_in_multiplier": 1.2, "attention_out_multiplier": 0.9, "key_multiplier": 1.7},
    **{"ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.8, "ssm_multipliers": [0.7, 1.5, 1.3, 1.6, 0.8]},
    **{"mlp_multipliers": [0.9, 0.6], "embedding_multiplier": 5.5, "lm_head_multiplier": 2.5},
}
PLAIN_H1 = {key: value for key, value in FALCON_H1.items() if "multiplier" not in key}
ZAMBA2 = IDS | {
    **{"hidden_size": 32, "num_hidden_layers": 5, "num_attention_heads": 4, "max_position_embeddings": 64},
    **{"n_mamba_heads": 8, "mamba_ngroups": 2, "mamba_d_state": 5, "adapter_rank": 3, "intermediate_size": 48},
    **{"layers_block_type": ["mamba", "hybrid", "mamba", "hybrid", "hybrid"], "rms_norm_eps": 1e-3},
}
HYBRIDS = {
    "qwen3_next": (tf.Qwen3NextConfig, QWEN3_NEXT),
    "qwen3_next two of four attend, a dense layer, biases, tied": (
        tf.Qwen3NextConfig,
        QWEN3_NEXT
        | TIED
        | {"full_attention_interval": 2, "mlp_only_layers": [2], "attention_bias": True, "norm_topk_prob": False}
        | {"linear_conv_kernel_dim": 3, "linear_num_key_heads": 4, "num_hidden_layers": 5}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}},
    ),
    "recurrent_gemma": (tf.RecurrentGemmaConfig, RECURRENT_GEMMA),
    "recurrent_gemma three of five attend, another width, biases, untied": (
        tf.RecurrentGemmaConfig,
        RECURRENT_GEMMA
        | UNTIED
        | {"num_hidden_layers": 5, "block_types": ["attention", "recurrent"], "lru_width": 32, "attention_bias": True}
        | {"conv1d_width": 3, "logits_soft_cap": 4.0, "hidden_activation": "relu", "num_key_value_heads": 2}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 1.0}},
    ),
    "falcon_h1": (tf.FalconH1Config, FALCON_H1),
    "falcon_h1 plain, normed, whole heads, biases, twice as wide, tied": (
        tf.FalconH1Config,
        PLAIN_H1
        | TIED
        | {"mamba_rms_norm": True, "num_key_value_heads": None, "attention_bias": True, "mlp_bias": True}
        | {"mamba_d_ssm": None, "mamba_n_heads": 8, "mamba_conv_bias": False, "mamba_d_conv": 3, "head_dim": 12},
    ),
    "falcon_h1 normed behind the gate": (
        tf.FalconH1Config,
        FALCON_H1 | {"mamba_rms_norm": True, "mamba_norm_before_gate": False},
    ),
    "zamba2": (tf.Zamba2Config, ZAMBA2),
    "zamba2 two blocks, turned, few KV heads": (
        tf.Zamba2Config,
        ZAMBA2
        | {"num_mem_blocks": 2, "use_mem_rope": True, "num_key_value_heads": 2, "hidden_act": "silu"}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "time_step_min": 0.01},
    ),
}
