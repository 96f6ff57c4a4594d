"""Parameter counts: the formulas of chapters 3.4 and 3.5, published models to the last one, ties counted once."""

import pytest

from builder.ledger import ledger
from builder.model.assemble import build

GPT2 = {
    "d_model": 768,
    "n_layers": 12,
    "vocab_size": 50257,
    "train_length": 1024,
    "deploy_length": 1024,
    "attention": {"name": "gqa", "n_heads": 12, "bias": True},
    "ffn": {"name": "mlp", "d_ff": 3072, "activation": "gelu_tanh"},
    "norm": {"name": "layernorm"},
    "position": {"name": "learned"},
}
LLAMA_3_70B = {
    "d_model": 8192,
    "n_layers": 80,
    "vocab_size": 128256,
    "train_length": 64,
    "deploy_length": 8192,
    "tie_embeddings": False,
    "attention": {"name": "gqa", "n_heads": 64, "n_kv_heads": 8},
    "ffn": {"name": "glu", "d_ff": 28672},
    "position": {"name": "rope", "theta": 500000.0},
}


@pytest.mark.parametrize(("published", "count"), [(GPT2, 124_439_808), (LLAMA_3_70B, 70_553_706_496)])
def test_published_models_to_the_last_parameter(architecture, published, count):
    costs = ledger(architecture(**published))
    assert costs.params == costs.active_params == count
    untied = architecture(**published | {"tie_embeddings": not published.get("tie_embeddings", True)})
    assert ledger(untied).params != count


@pytest.mark.parametrize(("heads", "kv_heads", "width"), [(2, 2, 4), (4, 2, 4), (4, 1, 6), (8, 8, 1)])
def test_attention_follows_chapter_3_4(architecture, heads, kv_heads, width):
    attention = {"name": "gqa", "n_heads": heads, "n_kv_heads": kv_heads, "d_head": width}
    costs = ledger(architecture(attention=attention, n_layers=3))
    assert costs.components["attention"] == 3 * (2 * 8 * heads * width + 2 * 8 * kv_heads * width)


@pytest.mark.parametrize(("name", "matrices"), [("mlp", 2), ("glu", 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_ffn_follows_chapter_3_5(architecture, name, matrices, bias):
    costs = ledger(architecture(ffn={"name": name, "d_ff": 12, "bias": bias}, n_layers=3))
    assert costs.components["ffn"] == 3 * (matrices * 8 * 12 + ((matrices - 1) * 12 + 8) * bias)


def test_standard_mha_is_four_d_squared(architecture):
    assert ledger(architecture()).components["attention"] == 4 * 8**2


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_components_add_up_to_the_built_model(architecture, tied, bias):
    spec = architecture(
        tie_embeddings=tied,
        head={"bias": bias},
        position={"name": "learned"},
        pattern=["attention+ffn", "local"],
        n_layers=5,
        local={"name": "gqa", "n_heads": 1},
    )
    model, costs = build(spec), ledger(spec)
    distinct = {id(p): p.numel() for p in model.parameters()}
    assert sum(costs.components.values()) == costs.params == sum(distinct.values())
    assert costs.components["embedding"] == 11 * 8 and costs.components["positions"] == 4 * 8
    assert costs.components.get("head", 0) == 11 * 8 * (not tied) + 11 * bias
    assert costs.components["norms"] == 8 * (3 * 2 + 2 + 1)
    assert costs.components["attention"] == 3 * 4 * 8 * 8 and costs.components["local"] == 2 * 4 * 8 * 8


def test_the_summary_names_what_runs_are_compared_by(architecture):
    costs = ledger(architecture())
    assert costs.summary() == {
        "ledger/params": costs.params,
        "ledger/active_params": costs.active_params,
        "ledger/flops_per_token": costs.flops_per_token,
        "ledger/state_bytes_per_token": costs.state_bytes_per_token,
    }
