"""Logits and gradients equal to transformers' GPT-2, Llama and SmolLM3 with the same random weights."""

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

GPT2 = {
    "attention": {"name": "gqa", "n_heads": 4, "bias": True},
    "ffn": {"name": "mlp", "d_ff": 48, "activation": "gelu_tanh"},
    "norm": {"name": "layernorm", "eps": 1e-3},
    "position": {"name": "learned"},
}
LLAMA = {
    "attention": {"name": "gqa", "n_heads": 4, "n_kv_heads": 2, "d_head": 8},
    "norm": {"name": "rmsnorm", "eps": 1e-3},
    "position": {"name": "rope", "theta": 500.0},
    "tie_embeddings": False,
}


def gpt2():
    config = GPT2Config(
        vocab_size=37, n_embd=32, n_layer=2, n_head=4, n_inner=48, n_positions=64, layer_norm_epsilon=1e-3,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=True, attn_implementation="eager",
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return GPT2LMHeadModel(config)


def llama():
    config = LlamaConfig(
        vocab_size=37, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        intermediate_size=48, rms_norm_eps=1e-3, max_position_embeddings=64, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0}, attn_implementation="eager",
    )  # fmt: skip
    return LlamaForCausalLM(config)


def gpt2_weights(theirs):
    """Conv1D keeps W transposed, and q, k, v in one matrix."""
    state = {}
    source = theirs.transformer
    state["embedding.weight"] = state["head.weight"] = source.wte.weight
    state["positions.model.weight"] = source.wpe.weight
    state["final_norm.weight"], state["final_norm.bias"] = source.ln_f.weight, source.ln_f.bias
    for i, block in enumerate(source.h):
        here = f"layers.{i}"
        for name, weight, bias in zip(
            "qkv", block.attn.c_attn.weight.T.chunk(3), block.attn.c_attn.bias.chunk(3), strict=True
        ):
            state[f"{here}.mixer.{name}.weight"], state[f"{here}.mixer.{name}.bias"] = weight, bias
        linears = {"mixer.o": block.attn.c_proj, "ffn.up": block.mlp.c_fc, "ffn.down": block.mlp.c_proj}
        for ours, linear in linears.items():
            state[f"{here}.{ours}.weight"], state[f"{here}.{ours}.bias"] = linear.weight.T, linear.bias
        for ours, norm in (("mixer_norm", block.ln_1), ("ffn_norm", block.ln_2)):
            state[f"{here}.{ours}.weight"], state[f"{here}.{ours}.bias"] = norm.weight, norm.bias
    return state


def llama_weights(theirs):
    source = theirs.model
    state = {"embedding.weight": source.embed_tokens.weight, "head.weight": theirs.lm_head.weight}
    state["final_norm.weight"] = source.norm.weight
    for i, block in enumerate(source.layers):
        pairs = {f"mixer.{n}": block.self_attn.get_submodule(f"{n}_proj") for n in "qkvo"}
        pairs |= {f"ffn.{n}": block.mlp.get_submodule(f"{n}_proj") for n in ("gate", "up", "down")}
        pairs |= {"mixer_norm": block.input_layernorm, "ffn_norm": block.post_attention_layernorm}
        state |= {f"layers.{i}.{ours}.weight": module.weight for ours, module in pairs.items()}
    return state


SMOLLM3 = LLAMA | {
    "pattern": ["attention+ffn", "unplaced+ffn"],
    "unplaced": LLAMA["attention"] | {"position": {"name": "none"}},
}


def smollm3():
    """Every second layer knows no positions but its mask's."""
    config = SmolLM3Config(
        vocab_size=37, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=48, rms_norm_eps=1e-3, max_position_embeddings=64, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0}, no_rope_layers=[1, 0], pad_token_id=None,
        attn_implementation="eager",
    )  # fmt: skip
    return SmolLM3ForCausalLM(config)


CASES = {
    "gpt2": (gpt2, gpt2_weights, GPT2),
    "llama": (llama, llama_weights, LLAMA),
    "smollm3": (smollm3, llama_weights, SMOLLM3),
}


@pytest.fixture(params=CASES)
def both(request, tiny):
    make, weights, overrides = CASES[request.param]
    theirs, generator = make().eval(), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(0.0, 0.2, generator=generator)

    def pair(kernel="sdpa", **changes):
        attention = overrides["attention"] | {"kernel": kernel}
        ours = tiny(**overrides | {"attention": attention} | changes)
        ours.load_state_dict({key: value.detach().clone() for key, value in weights(theirs).items()}, strict=True)
        return ours, theirs

    return pair


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_logits_equal(both, ids, kernel):
    ours, theirs = both(kernel)
    tokens = ids(3, 24)
    assert (ours(tokens).logits - theirs(tokens).logits).abs().max() <= 1e-5


def test_gradients_equal(both, ids):
    ours, theirs = both()
    tokens = ids(2, 12)
    for model in (ours, theirs):
        logits = model(tokens).logits
        torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    table = theirs.get_input_embeddings().weight.grad
    assert (ours.embedding.weight.grad - table).abs().max() <= 1e-5 and table.abs().max() > 1e-3


def test_padded_rows_equal(both, ids):
    ours, theirs = both()
    tokens, real = ids(2, 10), torch.ones(2, 10, dtype=torch.bool)
    real[0, :4] = False
    places = (real.long().cumsum(1) - 1).clamp_min(0)
    expected = theirs(tokens, attention_mask=real.long(), position_ids=places).logits
    assert ((ours(tokens, attention_mask=real).logits - expected) * real[..., None]).abs().max() <= 1e-5


def test_cached_steps_equal(both, ids):
    ours, theirs = both()
    tokens = ids(2, 8)
    state, cache = ours.new_state(2, 8), None
    for part in tokens.split((5, 1, 1, 1), dim=1):
        right = theirs(part, past_key_values=cache, use_cache=True)
        cache = right.past_key_values
        assert (ours(part, state=state).logits - right.logits).abs().max() <= 1e-4


@pytest.mark.parametrize(
    "change", [{"norm": {"name": "rmsnorm", "eps": 0.3}}, {"position": {"name": "rope", "theta": 10000.0}}]
)
def test_a_changed_knob_is_seen(tiny, ids, change):
    tokens = ids(3, 24)
    assert (tiny(**LLAMA)(tokens).logits - tiny(**LLAMA | change)(tokens).logits).abs().max() > 1e-2


@pytest.mark.parametrize("name", ["q", "k"])
def test_another_layout_of_heads_is_seen(both, ids, name):
    ours, theirs = both()
    tokens = ids(3, 24)
    with torch.no_grad():
        weight = ours.layers[0].mixer.get_submodule(name).weight
        weight.copy_(weight.unflatten(0, (-1, 8)).roll(1, 1).flatten(0, 1))
    assert (ours(tokens).logits - theirs(tokens).logits).abs().max() > 1e-2
