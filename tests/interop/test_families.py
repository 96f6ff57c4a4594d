"""Every family: logits equal to transformers' in full, padded and cached passes, and tensors bit-equal on the way back.

A case is (a config class, its fields); add one for each variant that a family's tables tell apart.
"""

from inspect import signature

import pytest
import torch
import transformers as tf

from builder import export_hf
from builder.interop import family
from tests.interop.conftest import IDS, fields, made, ours, tensors, theirs

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


@pytest.fixture(scope="module", params=CASES)
def folder(request, tmp_path_factory):
    """A tiny random model of the case, saved by transformers."""
    config, values = CASES[request.param]
    path = tmp_path_factory.mktemp("model")
    made(config(**values)).save_pretrained(path)
    return path


@pytest.fixture
def both(folder):
    return ours(folder), theirs(folder)


def ids(*shape):
    return torch.randint(IDS["vocab_size"], shape, generator=torch.Generator().manual_seed(0))


def test_every_family_has_a_case():
    assert {config.model_type for config, _ in CASES.values()} == set(family.model_types())


def test_full_passes_are_equal(both):
    mine, theirs = both
    tokens = ids(3, 24)
    assert (mine(tokens).logits - theirs(tokens).logits).abs().max() <= 1e-4


def test_padded_passes_are_equal(both):
    mine, theirs = both
    tokens, real = ids(2, 12), torch.ones(2, 12, dtype=torch.bool)
    real[0, :5] = False
    places = (real.long().cumsum(1) - 1).clamp_min(0)
    positioned = {"position_ids": places} if "position_ids" in signature(theirs.forward).parameters else {}
    expected = theirs(tokens, attention_mask=real.long(), **positioned).logits
    assert ((mine(tokens, attention_mask=real).logits - expected) * real[..., None]).abs().max() <= 1e-4


def test_cached_steps_are_equal(both):
    mine, theirs = both
    tokens = ids(2, 12)
    state, cache = mine.new_state(2, 12), None
    for part in tokens.split((8, 1, 1, 1, 1), dim=1):
        right = theirs(part, past_key_values=cache, use_cache=True)
        cache = right.past_key_values
        assert (mine(part, state=state).logits - right.logits).abs().max() <= 1e-4


def test_the_way_back_gives_every_bit(folder, tmp_path, quietly_loaded):
    mine = ours(folder)
    model_type = fields(folder)["model_type"]
    assert export_hf(mine, tmp_path / "back", family=model_type).model_type == model_type
    before, after = tensors(folder), tensors(tmp_path / "back")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    theirs, tokens = quietly_loaded(tmp_path / "back"), ids(3, 24)
    assert (mine(tokens).logits - theirs(tokens).logits).abs().max() <= 1e-5


def test_some_family_is_found_for_it(folder, tmp_path, quietly_loaded):
    mine, tokens = ours(folder), ids(3, 24)
    export_hf(mine, tmp_path / "out")
    assert (mine(tokens).logits - quietly_loaded(tmp_path / "out")(tokens).logits).abs().max() <= 1e-5


def test_another_layout_of_heads_is_seen(folder):
    """The negative control: query heads one place on, or keys, give other logits."""
    mine, tokens = ours(folder), ids(3, 24)
    right = mine(tokens).logits
    for name in "qk":
        with torch.no_grad():
            weight = mine.layers[0].mixer.get_submodule(name).weight
            weight.copy_(weight.roll(weight.shape[0] // 4, 0))
        assert (mine(tokens).logits - right).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["llama linear", "llama yarn", "llama llama3"])
def test_a_scaling_that_was_left_out_is_seen(tmp_path, change, name):
    """The negative control: dynamic scaling alone does nothing within max_position_embeddings."""
    config, values = CASES[name]
    model = made(config(**values))
    model.save_pretrained(tmp_path)
    change(tmp_path, rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    assert (ours(tmp_path)(ids(3, 24)).logits - model(ids(3, 24)).logits).abs().max() > 1e-3


def test_dynamic_scaling_past_its_length(tmp_path, change):
    config, values = CASES["llama dynamic"]
    tokens = ids(2, values["max_position_embeddings"] + 30)
    made(config(**values)).save_pretrained(tmp_path)
    right = theirs(tmp_path)(tokens).logits
    assert (ours(tmp_path)(tokens).logits - right).abs().max() <= 1e-4
    change(tmp_path, rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    assert (ours(tmp_path)(tokens).logits - right).abs().max() > 1e-3
