"""Tiny models of transformers whose mixers carry a state, as in cases.py: one for each variant of a family."""

import transformers as tf

from tests.interop.cases import LLAMA, TIED, UNTIED
from tests.interop.conftest import IDS

STATE = IDS | {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 5, "layer_norm_epsilon": 1e-3}
HEADS = {"num_heads": 8, "head_dim": 8, "n_groups": 2}
HYBRID = LLAMA | {"num_hidden_layers": 5, "mamba_d_state": 5}
BAMBA = HYBRID | {"attn_layer_indices": [1, 4], "mamba_n_heads": 8, "mamba_n_groups": 2}
JAMBA = HYBRID | {"attn_layer_period": 3, "attn_layer_offset": 1, "num_experts": 4, "expert_layer_period": 2}
RECURRENT = {
    "mamba": (tf.MambaConfig, STATE),
    "mamba untied, biases, three wide, another rank": (
        tf.MambaConfig,
        STATE | UNTIED | {"use_bias": True, "use_conv_bias": False, "expand": 3, "conv_kernel": 3, "time_step_rank": 5},
    ),
    "falcon_mamba": (tf.FalconMambaConfig, STATE | {"mixer_rms_eps": 1e-2, "expand": 16, "intermediate_size": 40}),
    "falcon_mamba untied": (tf.FalconMambaConfig, STATE | UNTIED | {"use_conv_bias": False, "time_step_max": 0.2}),
    "mamba2": (tf.Mamba2Config, STATE | HEADS),
    "mamba2 tied, one group, bounded steps": (
        tf.Mamba2Config,
        STATE | HEADS | TIED | {"n_groups": 1, "time_step_limit": (0.5, 0.9), "use_conv_bias": False, "conv_kernel": 3},
    ),
    "bamba": (tf.BambaConfig, BAMBA),
    "bamba tied, biases, whole heads, bounded steps": (
        tf.BambaConfig,
        BAMBA
        | TIED
        | {"attention_bias": True, "mlp_bias": True, "mamba_conv_bias": False, "time_step_limit": (0.5, 0.9)}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 1.0}},
    ),
    "jamba": (tf.JambaConfig, JAMBA),
    "jamba tied, biases, three of four, each layer sparse, attentions first": (
        tf.JambaConfig,
        JAMBA
        | TIED
        | {"mamba_proj_bias": True, "mamba_conv_bias": False, "mamba_dt_rank": 5, "num_experts_per_tok": 3}
        | {"expert_layer_period": 1, "expert_layer_offset": 0, "attn_layer_period": 4, "attn_layer_offset": 0},
    ),
    "jamba without experts": (tf.JambaConfig, JAMBA | {"num_experts": 1}),
}
