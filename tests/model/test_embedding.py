"""Both ends of a model against their formulas, and whole Gemma 2, Granite and GPT-NeoX models from transformers."""

import math

import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM, GPTNeoXConfig, GPTNeoXForCausalLM, GraniteConfig
from transformers import GraniteForCausalLM as Granite

from builder.checklist import check
from builder.compose import compose
from builder.load import load


def embedded(model, tokens):
    """What enters the first layer."""
    seen = []
    model.layers[0].register_forward_hook(lambda module, inputs, out: seen.append(inputs[0]))
    model(tokens)
    return seen[0]


def layer_norm(x, norm):
    mean = x.mean(-1, keepdim=True)
    return norm.weight * (x - mean) / ((x - mean).square().mean(-1, keepdim=True) + norm.eps).sqrt() + norm.bias


@pytest.mark.parametrize(("scale", "factor"), [(None, 1.0), (12.5, 12.5), ("sqrt_d_model", math.sqrt(32))])
@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize("position", ["learned", "rope"])
def test_scale_then_positions_then_norm(tiny, ids, scale, factor, normed, position):
    knobs = {"scale": scale, "norm": {"name": "layernorm"} if normed else None}
    model, tokens = tiny(torch.float64, embedding=knobs, position=position), ids(2, 5)
    right = factor * model.embedding.weight[tokens]
    right = right + model.positions["model"].weight[:5] if position == "learned" else right
    right = layer_norm(right, model.embedding.norm) if normed else right
    assert torch.allclose(embedded(model, tokens), right, atol=1e-12)
    assert ("embedding.norm.weight" in model.state_dict()) == normed


def test_dropout_comes_last(tiny, ids):
    model = tiny(embedding={"norm": {"name": "layernorm"}, "dropout": 0.5}).train()
    x = embedded(model, ids(4, 16))
    assert 0.3 < (x == 0).float().mean() < 0.7


def test_the_factor_is_not_rounded_to_bfloat16(tiny, ids):
    model = tiny(torch.bfloat16, d_model=40, embedding={"scale": "sqrt_d_model"})
    table = model.embedding.weight[ids(2, 5)]
    assert torch.equal(embedded(model, ids(2, 5)), (table.double() * math.sqrt(40)).bfloat16())
    rounded = table * torch.tensor(math.sqrt(40)).bfloat16()  # as Gemma does
    assert not torch.equal(embedded(model, ids(2, 5)), rounded)


@pytest.mark.parametrize("softcap", [None, 0.1])
@pytest.mark.parametrize("scale", [None, 0.25])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_logits_by_hand(tiny, ids, tied, bias, scale, softcap):
    model = tiny(torch.float64, tie_embeddings=tied, head={"bias": bias, "scale": scale, "softcap": softcap})
    out = model(ids(2, 5))
    right = out.hidden @ (model.embedding if tied else model.head).weight.T + (model.head.bias if bias else 0.0)
    right = right * (scale or 1.0)
    assert softcap is None or right.abs().max() > 0.5 * softcap, "the cap would not be felt"
    right = right if softcap is None else softcap * torch.tanh(right / softcap)
    assert torch.allclose(out.logits, right, atol=1e-12)
    assert (model.head.weight is model.embedding.weight) == tied
    assert [key for key in model.state_dict() if key.startswith("head")] == ["head.weight", "head.bias"][: 1 + bias]
    assert model.flops(5) == tiny(tie_embeddings=tied).flops(5)


def gemma2():
    config = Gemma2Config(
        vocab_size=37, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        intermediate_size=48, rms_norm_eps=1e-3, query_pre_attn_scalar=8, attn_logit_softcapping=None,
        final_logit_softcapping=3.0, sliding_window=64, max_position_embeddings=64, attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    )  # fmt: skip
    return Gemma2ForCausalLM(config)


def granite():
    config = GraniteConfig(
        vocab_size=37, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=48, rms_norm_eps=1e-3, embedding_multiplier=12.0, residual_multiplier=0.22,
        attention_multiplier=8**-0.5, logits_scaling=8.0, tie_word_embeddings=True, attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    )  # fmt: skip
    return Granite(config)


def neox():
    config = GPTNeoXConfig(
        vocab_size=37, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        layer_norm_eps=1e-3, use_parallel_residual=True, tie_word_embeddings=False, attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
        hidden_act="gelu", max_position_embeddings=64,
    )  # fmt: skip
    return GPTNeoXForCausalLM(config)


def llama_like(theirs, norms):
    source = theirs.model
    state = {"embedding.weight": source.embed_tokens.weight, "head.weight": theirs.lm_head.weight}
    state["final_norm.weight"] = source.norm.weight
    for i, block in enumerate(source.layers):
        pairs = {f"mixer.{n}": block.self_attn.get_submodule(f"{n}_proj") for n in "qkvo"}
        pairs |= {f"ffn.{n}": block.mlp.get_submodule(f"{n}_proj") for n in ("gate", "up", "down")}
        pairs |= {ours: block.get_submodule(norm) for ours, norm in norms.items()}
        state |= {f"layers.{i}.{ours}.weight": module.weight for ours, module in pairs.items()}
    return state


def gemma2_weights(theirs):
    names = {"mixer_norm": "input_layernorm", "mixer_out_norm": "post_attention_layernorm"}
    names |= {"ffn_norm": "pre_feedforward_layernorm", "ffn_out_norm": "post_feedforward_layernorm"}
    return llama_like(theirs, names)


def granite_weights(theirs):
    return llama_like(theirs, {"mixer_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"})


def neox_weights(theirs):
    source = theirs.gpt_neox
    state = {"embedding.weight": source.embed_in.weight, "head.weight": theirs.get_output_embeddings().weight}
    pairs = {"final_norm": source.final_layer_norm}
    for i, block in enumerate(source.layers):
        here, packed = f"layers.{i}", block.attention.query_key_value
        for kind in ("weight", "bias"):  # q, k and v of a head lie side by side
            heads = getattr(packed, kind).unflatten(0, (4, 3, 8))  # (H, 3, E, ...)
            for name, part in zip("qkv", heads.unbind(1), strict=True):
                state[f"{here}.mixer.{name}.{kind}"] = part.flatten(0, 1)
        pairs |= {f"{here}.mixer.o": block.attention.dense, f"{here}.ffn.up": block.mlp.dense_h_to_4h}
        pairs |= {f"{here}.ffn.down": block.mlp.dense_4h_to_h, f"{here}.mixer_norm": block.input_layernorm}
        pairs |= {f"{here}.ffn_norm": block.post_attention_layernorm}
    return state | {f"{k}.{kind}": getattr(m, kind) for k, m in pairs.items() for kind in ("weight", "bias")}


ROPE = {"name": "rope", "theta": 500.0}
CASES = {
    "gemma2": (gemma2, gemma2_weights, {
        "norm": {"name": "rmsnorm", "eps": 1e-3, "unit_offset": True}, "block": {"name": "sandwich"},
        "embedding": {"scale": "sqrt_d_model"}, "head": {"softcap": 3.0}, "position": ROPE,
        "ffn": {"name": "glu", "d_ff": 48, "activation": "gelu_tanh"},
    }),
    "granite": (granite, granite_weights, {
        "norm": {"name": "rmsnorm", "eps": 1e-3}, "head": {"scale": 1 / 8}, "embedding": {"scale": 12.0},
        "block": {"name": "pre_norm", "residual": {"name": "constant", "branch": 0.22}}, "position": ROPE,
    }),
    "neox": (neox, neox_weights, {
        "norm": {"name": "layernorm", "eps": 1e-3}, "block": {"name": "parallel", "norms": 2}, "tie_embeddings": False,
        "attention": {"name": "gqa", "n_heads": 4, "bias": True}, "position": ROPE | {"fraction": 0.5},
        "ffn": {"name": "mlp", "d_ff": 48, "activation": "gelu"},
    }),
}  # fmt: skip
CHANGES = {  # for each model, what it would be with one option left out
    "gemma2": [{"embedding": {}}, {"head": {}}, {"norm": {"name": "rmsnorm", "eps": 1e-3}}],
    "granite": [{"embedding": {}}, {"head": {}}, {"block": {"name": "pre_norm"}}],
    "neox": [{"block": {"name": "pre_norm"}}],
}


@pytest.mark.parametrize("name", CASES)
def test_logits_equal_those_of_transformers(tiny, ids, name):
    make, weights, overrides = CASES[name]
    theirs, generator = make().eval(), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(0.0, 0.2, generator=generator)
    state, tokens = {key: value.detach().clone() for key, value in weights(theirs).items()}, ids(3, 24)
    right = theirs(tokens).logits
    for change in ({}, *CHANGES[name]):
        ours = tiny(**overrides | change)
        ours.load_state_dict(state, strict=True)
        difference = (ours(tokens).logits - right).abs().max()
        assert difference > 1e-3 if change else difference <= 1e-5, change


@pytest.fixture(scope="module")
def told():
    """told(*overrides): {path: finding} of section 4."""
    return lambda *overrides: {
        f.path: f for f in check(load(compose(overrides)), probes=False).findings if f.section == 4
    }


def test_plain_ends_go_without_saying(told):
    assert not {"model.embedding", "model.head"} & told().keys()


def test_both_ends_are_drawn(told):
    findings = told("model.embedding.scale=sqrt_d_model", "model.embedding.norm={name: layernorm}",
                    "model/position=learned", "model.head={bias: true, scale: 0.5, softcap: 30.0}")  # fmt: skip
    assert findings["model.embedding"].found == "x = norm(sqrt(d) E[t] + P)"
    assert findings["model.head"].found == "logits = 30 tanh(0.5 (W h + b) / 30)"
    assert "embedding's table" in findings["model.head"].rule
    assert told("model.embedding.scale=12.0")["model.embedding"].found == "x = 12 E[t]"
    untied = told("model.head.bias=true", "model.tie_embeddings=false")["model.head"]
    assert untied.found == "logits = W h + b" and "its own" not in untied.found and "own" in untied.rule


def test_a_cap_that_keeps_the_model_unsure_is_told(told):
    path = "model.head.softcap"
    warned = told("model.head.softcap=2.0", "model.vocab_size=258")[path]
    assert warned.status == "WARN" and f"{math.exp(4) / (math.exp(4) + 257):.2g}" in warned.rule
    assert path not in told(f"model.head.softcap={warned.fix.split('=')[1].split()[0]}.0", "model.vocab_size=258")
    assert path not in told("model.head.softcap=30.0")


@pytest.mark.parametrize("value", ["sqrt", "-1", "0", "true"])
def test_a_scale_that_is_neither_is_refused_once(value):
    from builder.errors import ConfigError

    with pytest.raises(ConfigError, match=r"1 problem in the config\nmodel\.embedding\.scale: found"):
        load(compose([f"model.embedding.scale={value}"]))
