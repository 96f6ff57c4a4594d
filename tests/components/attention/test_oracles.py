"""GQA's knobs against transformers' attentions with the same random weights: Qwen 2 and 3, OLMo 2, Gemma 2, gpt-oss."""

from importlib import import_module

import pytest
import torch
from torch import nn

from builder.model.positions import Positions, count

D, H, K, E, T, THETA, EPS = 32, 4, 2, 8, 11, 500.0, 1e-3
NORM = {"qk_norm": {"name": "rmsnorm", "eps": EPS}}
# module: (class, its config beside the sizes, our knobs, their norms)
MODELS = {
    "qwen2": ("Qwen2", {}, {"bias": ["q", "k", "v"]}, ()),
    "qwen3": ("Qwen3", {}, NORM, ("q_norm", "k_norm")),
    "olmo2": ("Olmo2", {}, NORM | {"qk_norm_over": "projection"}, ("q_norm", "k_norm")),
    "hunyuan_v1_dense": ("HunYuanDenseV1", {}, NORM | {"qk_norm_at": "after"}, ("query_layernorm", "key_layernorm")),
    "gemma2": (
        "Gemma2",
        {"attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 3, "layer_types": ["sliding_attention"]},
        {"softcap": 2.0, "scale": 3.0**-0.5, "window": 4},
        (),
    ),
    "gpt_oss": (
        "GptOss",
        {"attention_bias": True, "layer_types": ["sliding_attention"]},
        {"bias": True, "sinks": True, "window": 4},
        (),
    ),
}


def theirs(name):
    """Their attention and rotary module; every parameter from N(0, 0.3^2)."""
    prefix, facts, _, _ = MODELS[name]
    home = import_module(f"transformers.models.{name}.modeling_{name}")
    sizes = {
        "vocab_size": 37, "hidden_size": D, "num_attention_heads": H, "num_key_value_heads": K, "head_dim": E,
        "num_hidden_layers": 1, "intermediate_size": 48, "rms_norm_eps": EPS, "max_position_embeddings": 64,
        "sliding_window": 4, "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
        "pad_token_id": 0, "attn_implementation": "eager",
    }  # fmt: skip
    config = getattr(home, f"{prefix}Config")(**sizes | facts)
    attention = getattr(home, f"{prefix}Attention")(config, layer_idx=0).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
    return attention, getattr(home, f"{prefix}RotaryEmbedding")(config)


def weights(attention, norms):
    """Their weights under our names."""
    state = {}
    for part in "qkvo":
        linear: nn.Linear = attention.get_submodule(f"{part}_proj")
        state[f"{part}.weight"] = linear.weight
        if linear.bias is not None:
            state[f"{part}.bias"] = linear.bias
    for ours, norm in zip(("q_norm", "k_norm"), norms, strict=False):
        state[f"{ours}.weight"] = attention.get_submodule(norm).weight
    return state | ({"sinks": attention.sinks} if hasattr(attention, "sinks") else {})


@pytest.fixture
def both(config, site, context):
    """both(model, **changes): (ours, theirs) on one input of T tokens; `changes` are to our knobs."""

    def run(name, **changes):
        attention, rotary = theirs(name)
        _, _, knobs, norms = MODELS[name]
        made = config("attention", "gqa", **{"n_heads": H, "n_kv_heads": K, "d_head": E} | knobs | changes)
        ours, state = made.component(made, site()), weights(attention, norms)
        ours.load_state_dict(state, strict=True)
        x = torch.randn(2, T, D, generator=torch.Generator().manual_seed(2))
        rope = config("position", "rope", theta=THETA)
        scheme = rope.component(rope, site())
        with torch.no_grad():
            out = ours(x, context(T, position=scheme, positions=Positions(count(T, 0, x.device))))
            query, key = torch.arange(T)[:, None], torch.arange(T)
            hidden = (key > query) | (key <= query - (knobs.get("window") or T))
            mask = torch.zeros(1, 1, T, T).masked_fill(hidden, -torch.inf)
            return out, attention(x, rotary(x, torch.arange(T)[None]), mask)[0]

    return run


@pytest.mark.parametrize("name", MODELS)
def test_what_it_gives_equals_theirs(both, name):
    ours, right = both(name)
    assert (ours - right).abs().max() <= 2e-6 * max(1.0, right.abs().max().item())


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("qwen3", {"qk_norm": {"name": "rmsnorm", "eps": 0.5}}),
        ("qwen3", {"qk_norm_at": "after"}),
        ("hunyuan_v1_dense", {"qk_norm_at": "before"}),
        ("gemma2", {"softcap": 50.0}),
        ("gemma2", {"scale": None}),
        ("gemma2", {"window": 5}),
        ("gpt_oss", {"window": 3}),
    ],
    ids=str,
)
def test_a_changed_knob_is_seen(both, name, change):
    ours, right = both(name, **change)
    assert (ours - right).abs().max() > 1e-2


@pytest.mark.parametrize(
    ("name", "change"),
    [("qwen2", {"bias": ["q", "k"]}), ("qwen2", {"bias": True}), ("olmo2", {"qk_norm_over": "head"}),
     ("gpt_oss", {"sinks": False})],
    ids=str,
)  # fmt: skip
def test_a_knob_that_changes_what_is_held_is_seen(both, name, change):
    with pytest.raises(RuntimeError, match="state_dict"):
        both(name, **change)
