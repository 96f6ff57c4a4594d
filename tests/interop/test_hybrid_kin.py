"""Families that mix attention with states: every field changes our model as theirs, or is refused."""

import re

import pytest

from builder import ArchlabError, build, compose, export_hf, import_hf, load
from tests.interop.cases_hybrid import HYBRIDS
from tests.interop.conftest import ids, made, ours, tensors, theirs

LINEAR, FULL = "linear_attention", "full_attention"
CHANGES = [
    ("qwen3_next", {"rms_norm_eps": 0.1}),
    ("qwen3_next", {"norm_topk_prob": False}),
    ("qwen3_next", {"rope_parameters": None, "partial_rotary_factor": 0.5}),
    ("recurrent_gemma", {"attention_window_size": 5}),
    ("recurrent_gemma", {"logits_soft_cap": 2.0}),
    ("recurrent_gemma", {"hidden_activation": "relu"}),
    ("recurrent_gemma", {"rope_parameters": None, "partial_rotary_factor": 1.0}),
    *(
        ("falcon_h1", {f"{name}_multiplier": 2.0})
        for name in ("attention_in", "attention_out", "key", "ssm_in", "ssm_out", "embedding", "lm_head")
    ),
    *(
        ("falcon_h1", {"ssm_multipliers": [2.0 if part == changed else 1.0 for part in range(5)]})
        for changed in range(5)
    ),
    ("falcon_h1", {"mlp_multipliers": [2.0, 0.6]}),
    ("falcon_h1", {"mlp_multipliers": [0.9, 2.0]}),
    ("falcon_h1", {"ssm_multipliers": None, "mlp_multipliers": None}),
    ("falcon_h1", {"rope_parameters": None, "rope_theta": 50.0}),
    ("falcon_h1", {"time_step_limit": [2.0, 3.0]}),
    ("falcon_h1 normed behind the gate", {"mamba_norm_before_gate": True}),
    ("falcon_h1 normed behind the gate", {"rms_norm_eps": 0.1}),
    ("zamba2", {"hidden_act": "silu"}),
    ("zamba2", {"use_mem_rope": True}),
    ("zamba2", {"rms_norm_eps": 0.1}),
    ("zamba2", {"time_step_min": 0.9}),
]
REFUSED = [
    ("qwen3_next", {"layer_types": [LINEAR, FULL]}),
    ("qwen3_next", {"layer_types": [LINEAR, LINEAR, FULL, "sliding_attention"]}),
    ("qwen3_next", {"layer_types": None, "full_attention_interval": 0}, "full_attention_interval"),
    ("qwen3_next", {"linear_num_key_heads": 3}),
    ("qwen3_next", {"use_sliding_window": True}),
    ("recurrent_gemma", {"block_types": []}),
    ("recurrent_gemma", {"block_types": ["recurrent", "mlp"]}),
    ("recurrent_gemma", {"_block_types": ["attention", "recurrent"]}),
    ("recurrent_gemma", {"embeddings_scale_by_sqrt_dim": False}),
    ("falcon_h1", {"mamba_proj_bias": True}),
    ("falcon_h1", {"projectors_bias": True}),
    ("falcon_h1", {"mamba_n_heads": 5}),
    ("falcon_h1", {"mamba_d_head": 7}),
    ("falcon_h1", {"mamba_d_ssm": None, "mamba_expand": "x"}, "mamba_expand"),
    ("falcon_h1", {"ssm_multipliers": [1.0, 2.0]}),
    ("falcon_h1", {"mlp_multipliers": [1.0]}),
    ("falcon_h1", {"key_multiplier": -1.0}),
    ("falcon_h1", {"key_multiplier": "x"}),
    ("falcon_h1", {"attention_in_multiplier": 0.0}),
    ("falcon_h1", {"hidden_act": "gelu"}),
    ("zamba2", {"layers_block_type": ["mamba", "hybrid"]}),
    ("zamba2", {"use_shared_attention_adapter": True}),
    ("zamba2", {"add_bias_linear": True}),
    ("zamba2", {"tie_word_embeddings": False}),
    ("zamba2", {"attention_head_dim": 8}),
    ("zamba2", {"hidden_act": "x"}),
    ("zamba2", {"num_mem_blocks": 0}),
    ("zamba2", {"time_step_min": "x"}),
]


@pytest.fixture
def saved(tmp_path):
    def save(name):
        config, values = HYBRIDS[name]
        made(config(**values)).save_pretrained(tmp_path)
        return tmp_path

    return save


@pytest.mark.parametrize(("name", "values"), CHANGES)
def test_a_field_means_what_it_means_to_them(saved, change, name, values):
    folder, tokens = saved(name), ids(3, 24)
    before = ours(folder)(tokens).logits
    change(folder, **values)
    after = ours(folder)(tokens).logits
    assert (after - theirs(folder)(tokens).logits).abs().max() <= 1e-5 * max(1.0, after.abs().max())
    assert (after - before).abs().max() > 1e-3


@pytest.mark.parametrize(("name", "values", "named"), [(*case, *case[1])[:3] for case in REFUSED])
def test_a_field_that_is_not_served_is_named(saved, change, name, values, named):
    folder = saved(name)
    import_hf(folder)
    change(folder, **values)
    with pytest.raises(ArchlabError) as refused:
        import_hf(folder)
    assert re.search(rf"config\.json: {named}", str(refused.value))


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("qwen3_next", "model.layers.3.self_attn.q_proj.weight"),
        ("qwen3_next", "model.layers.0.linear_attn.in_proj_qkvz.weight"),
        ("qwen3_next", "model.layers.0.linear_attn.in_proj_ba.weight"),
        ("recurrent_gemma", "model.layers.0.temporal_block.rg_lru.input_gate_weight"),
        ("recurrent_gemma", "model.layers.0.temporal_block.rg_lru.recurrent_param"),
        ("falcon_h1", "model.layers.0.mamba.in_proj.weight"),
        ("zamba2", "model.layers.1.shared_transformer.feed_forward.gate_up_proj.weight"),
        ("zamba2", "model.layers.1.shared_transformer.feed_forward.gate_up_proj_adapter_list.2.1.weight"),
    ],
)
def test_rows_in_another_order_are_seen(saved, retensor, name, tensor):
    folder = saved(name)
    before = ours(folder)(ids(3, 24)).logits
    retensor(folder, lambda state: state.update({tensor: state[tensor].roll(1, 0)}))
    after = ours(folder)(ids(3, 24)).logits
    assert (after - before).abs().max() > 1e-3
    assert (after - theirs(folder)(ids(3, 24)).logits).abs().max() <= 1e-4


@pytest.mark.parametrize("position", ["rope", "none"])
def test_ours_with_nothing_stated_goes_out_as_it_is(tmp_path, quietly_loaded, position):
    """Heads, widths and positions that follow from the model's; without positions no file of theirs could say it."""
    sizes = [
        "model.d_model=32",
        "model.n_layers=2",
        "model.vocab_size=37",
        "model.ssm.ssm.d_head=8",
        "model.norm.eps=1e-5",
    ]
    knobs = ["model/ssm@model.ssm=hybrid_head", "model.pattern=[ssm+ffn]", "~model.attention", *sizes]
    model = build(load(compose([*knobs, f"model/position={position}"])).model, seed=0).eval()
    if position == "none":
        with pytest.raises(ArchlabError, match="no family can express this model"):
            export_hf(model, tmp_path / "out")
        return
    assert export_hf(model, tmp_path / "out").model_type == "falcon_h1"
    theirs, tokens = quietly_loaded(tmp_path / "out"), ids(2, 12)
    assert (model(tokens).logits - theirs(tokens).logits).abs().max() <= 1e-5


def test_layers_that_predict_tokens_further_on_stay_behind(saved, retensor):
    folder = saved("qwen3_next")
    retensor(folder, lambda state: state.update({"mtp.fc.weight": state["model.norm.weight"].clone()}))
    assert (ours(folder)(ids(3, 24)).logits - theirs(folder)(ids(3, 24)).logits).abs().max() <= 1e-5
    retensor(folder, lambda state: state.update({"mtq.fc.weight": state["model.norm.weight"].clone()}))
    assert "mtq.fc.weight" in tensors(folder)
    with pytest.raises(ArchlabError, match=re.escape("mtq.fc.weight: unexpected")):
        import_hf(folder)
