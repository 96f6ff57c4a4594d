"""Tiny models of transformers without experts, {name: (a config class, its fields)}: one for each variant."""

import transformers as tf

from tests.interop.conftest import IDS

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}
GPT2 = IDS | {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
LLAMA = IDS | SIZES | {"intermediate_size": 48, "num_key_value_heads": 2, "rms_norm_eps": 1e-3}
CASES = {
    "gpt2": (tf.GPT2Config, GPT2),
    "gpt2 untied, another width and eps": (
        tf.GPT2Config,
        GPT2 | {"n_inner": 40, "activation_function": "relu", "layer_norm_epsilon": 1e-3, "tie_word_embeddings": False},
    ),
    "llama": (tf.LlamaConfig, LLAMA),
    "llama tied, biases, wide heads": (
        tf.LlamaConfig,
        LLAMA | {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True, "head_dim": 16},
    ),
    "llama theta": (tf.LlamaConfig, LLAMA | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
}
YARN = {"rope_type": "yarn", "factor": 4.0, "beta_fast": 8.0, "beta_slow": 1.0}
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALED = {
    "llama linear": {"rope_type": "linear", "factor": 2.0},
    "llama dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama yarn": YARN | {"original_max_position_embeddings": 16},
    "llama llama3": LLAMA3 | {"original_max_position_embeddings": 16},
}
CASES |= {
    name: (tf.LlamaConfig, LLAMA | {"rope_parameters": scaling | {"rope_theta": 500.0}})
    for name, scaling in SCALED.items()
}
NEAR, FAR = "sliding_attention", "full_attention"
QWEN3 = LLAMA | {"head_dim": 12}
GEMMA = QWEN3 | {"num_hidden_layers": 3, "query_pre_attn_scalar": 24, "sliding_window": 4}
GEMMA2 = GEMMA | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 4.0}
NEAR_FAR_TURNS = {
    NEAR: {"rope_type": "default", "rope_theta": 50.0},
    FAR: {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
}
CASES |= {
    "mistral": (tf.MistralConfig, LLAMA | {"sliding_window": 4}),
    "mistral no window": (tf.MistralConfig, QWEN3 | {"sliding_window": None, "tie_word_embeddings": True}),
    "qwen2": (tf.Qwen2Config, LLAMA),
    "qwen2 windows above": (
        tf.Qwen2Config,
        LLAMA
        | {"num_hidden_layers": 5, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2}
        | {"tie_word_embeddings": True},
    ),
    "qwen3": (tf.Qwen3Config, QWEN3 | {"tie_word_embeddings": True}),
    "qwen3 windows below, biases": (
        tf.Qwen3Config,
        QWEN3
        | {"num_hidden_layers": 5, "use_sliding_window": True, "sliding_window": 4, "attention_bias": True}
        | {"layer_types": [NEAR, NEAR, FAR, NEAR, NEAR]},
    ),
    "qwen3 windows everywhere": (
        tf.Qwen3Config,
        QWEN3 | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0},
    ),
    "gemma2": (tf.Gemma2Config, GEMMA2),
    "gemma2 unbounded, untied, far layers only": (
        tf.Gemma2Config,
        GEMMA
        | {"attn_logit_softcapping": None, "final_logit_softcapping": None, "tie_word_embeddings": False}
        | {"layer_types": [FAR] * 3, "attention_bias": True},
    ),
    "gemma3_text": (tf.Gemma3TextConfig, GEMMA | {"num_hidden_layers": 7}),
    "gemma3_text two scales, bounded, untied": (
        tf.Gemma3TextConfig,
        GEMMA
        | {"num_hidden_layers": 5, "sliding_window_pattern": 3, "rope_parameters": NEAR_FAR_TURNS}
        | {"final_logit_softcapping": 4.0, "tie_word_embeddings": False},
    ),
    "gemma3_text near layers only": (tf.Gemma3TextConfig, GEMMA | {"rope_parameters": NEAR_FAR_TURNS}),
    "gemma3_text without a period": (
        tf.Gemma3TextConfig,
        GEMMA | {"num_hidden_layers": 5, "layer_types": [FAR, FAR, NEAR, FAR, NEAR], "attention_bias": True},
    ),
    "olmo2": (tf.Olmo2Config, LLAMA),
    "olmo2 tied, biases": (tf.Olmo2Config, LLAMA | {"tie_word_embeddings": True, "attention_bias": True}),
}
PLAIN = SIZES | {"intermediate_size": 48} | IDS
UNTIED, TIED = {"tie_word_embeddings": False}, {"tie_word_embeddings": True}
GPTJ = GPT2 | {"rotary_dim": 4}
BLOOM = IDS | {"hidden_size": 24, "n_layer": 2, "n_head": 4}
FALCON = IDS | SIZES
FALCON40 = FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2}
MPT = IDS | {"d_model": 24, "n_layers": 2, "n_heads": 4, "max_seq_len": 64}
CASES |= {
    "gpt_neox": (tf.GPTNeoXConfig, PLAIN),
    "gpt_neox serial, tied, no attention biases, whole heads": (
        tf.GPTNeoXConfig,
        PLAIN
        | TIED
        | {"use_parallel_residual": False, "attention_bias": False, "hidden_act": "gelu_fast", "layer_norm_eps": 1e-3}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 1.0}},
    ),
    "gpt_neox scaled": (
        tf.GPTNeoXConfig,
        PLAIN | {"rope_parameters": SCALED["llama linear"] | {"rope_theta": 500.0, "partial_rotary_factor": 0.5}},
    ),
    "gptj": (tf.GPTJConfig, GPTJ),
    "gptj tied, whole heads, another width": (
        tf.GPTJConfig,
        GPTJ | TIED | {"rotary_dim": 8, "n_inner": 40, "activation_function": "relu", "layer_norm_epsilon": 1e-3},
    ),
    "gptj odd part": (tf.GPTJConfig, GPTJ | {"n_embd": 28, "n_head": 2, "rotary_dim": 6}),
    "phi": (tf.PhiConfig, PLAIN),
    "phi tied, grouped, normed queries": (
        tf.PhiConfig,
        PLAIN
        | TIED
        | {"num_key_value_heads": 2, "qk_layernorm": True, "layer_norm_eps": 1e-3}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.25}},
    ),
    "bloom": (tf.BloomConfig, BLOOM),
    "bloom six heads, untied": (tf.BloomConfig, BLOOM | UNTIED | {"n_head": 6, "layer_norm_epsilon": 1e-3}),
    "bloom three heads": (tf.BloomConfig, BLOOM | {"n_head": 3}),
    "starcoder2": (tf.Starcoder2Config, PLAIN | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    "starcoder2 window, no biases, one KV head, untied": (
        tf.Starcoder2Config,
        PLAIN | UNTIED | {"sliding_window": 4, "use_bias": False, "num_key_value_heads": 1, "norm_epsilon": 1e-3},
    ),
    "starcoder2 wide heads": (tf.Starcoder2Config, PLAIN | {"head_dim": 16, "hidden_act": "relu"}),
    "falcon": (tf.FalconConfig, FALCON | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    "falcon biases, another width, untied": (
        tf.FalconConfig,
        FALCON | UNTIED | {"bias": True, "ffn_hidden_size": 40, "activation": "relu", "layer_norm_epsilon": 1e-3},
    ),
    "falcon new": (tf.FalconConfig, FALCON40),
    "falcon new, one norm, biases": (tf.FalconConfig, FALCON40 | {"num_ln_in_parallel_attn": 1, "bias": True}),
    "falcon new, one KV head": (tf.FalconConfig, FALCON40 | {"num_kv_heads": 1}),
    "falcon alibi, serial": (
        tf.FalconConfig,
        FALCON | {"alibi": True, "parallel_attn": False, "multi_query": False, "bias": True},
    ),
    "falcon alibi, eight heads": (tf.FalconConfig, FALCON | {"alibi": True, "num_attention_heads": 8}),
    "falcon serial, one KV head": (tf.FalconConfig, FALCON | {"parallel_attn": False}),
    "mpt": (tf.MptConfig, MPT),
    "mpt six heads, untied, another scale": (
        tf.MptConfig,
        MPT | UNTIED | {"n_heads": 6, "layer_norm_epsilon": 1e-3, "attn_config": {"softmax_scale": 0.3}},
    ),
    "mpt three heads": (tf.MptConfig, MPT | {"n_heads": 3}),
}
