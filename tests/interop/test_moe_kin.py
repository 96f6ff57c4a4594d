"""Families with experts: every field changes our model as theirs, or is refused; whoever lies elsewhere is seen."""

import re

import pytest
import torch
import transformers as tf

from builder import ArchlabError, build, compose, export_hf, import_hf, load
from builder.interop.bring import note_on
from builder.interop.facts import Facts
from builder.interop.family import find
from builder.interop.hf_config import HFConfig
from tests.interop.cases import FAR, NEAR
from tests.interop.cases_moe import HALFWAY, MIXTURES, STRETCHED
from tests.interop.conftest import fields, ids, made, ours, tensors, theirs

BETWEEN = "qwen3_moe dense layers between, window, biases, tied"
WINDOWS = "qwen2_moe windows below, dense layers between, no biases, tied"
CHANGES = [
    ("mixtral", {"num_experts_per_tok": 1}),
    ("mixtral", {"sliding_window": 4}),
    ("mixtral", {"rope_parameters": None, "rope_theta": 50.0}),
    ("mixtral", {"hidden_act": "quick_gelu"}),
    ("qwen3_moe", {"norm_topk_prob": False}),
    ("qwen3_moe", {"use_sliding_window": True, "sliding_window": 4}),
    (BETWEEN, {"use_sliding_window": False}),
    (BETWEEN, {"sliding_window": None}),
    ("olmoe", {"norm_topk_prob": True}),
    ("olmoe", {"rms_norm_eps": 0.1}),
    (WINDOWS, {"layer_types": None, "max_window_layers": 2}),
    (WINDOWS, {"layer_types": [FAR, NEAR, NEAR, NEAR, FAR]}),
    (WINDOWS, {"layer_types": None, "use_sliding_window": False}),
    ("deepseek_v3", {"norm_topk_prob": False}),
    ("deepseek_v3", {"routed_scaling_factor": 1.5}),
    ("deepseek_v3", {"topk_group": 1}),
    ("deepseek_v3", {"n_group": 2, "topk_group": 1}),
    ("deepseek_v3", {"n_group": 1, "topk_group": 1}),
    ("deepseek_v3", {"rope_interleave": False}),
    ("deepseek_v3", {"rms_norm_eps": 0.1}),  # and that of the latents stays
    ("deepseek_v3 stretched", {"rope_parameters": STRETCHED}),
    ("deepseek_v3 stretched", {"rope_parameters": STRETCHED | {"mscale_all_dim": 1.0}}),
    ("gpt_oss", {"swiglu_limit": 0.2}),
    ("gpt_oss", {"rope_parameters": None}),
    ("gpt_oss", {"rope_parameters": None, "rope_scaling": STRETCHED}),
    ("gpt_oss", {"rope_parameters": HALFWAY}),
    ("gpt_oss unstretched, near layers last", {"layer_types": None}),
    ("gpt_oss", {"sliding_window": 5}),
]
REFUSED = [
    ("mixtral", {"num_local_experts": 0}),
    ("mixtral", {"num_experts": 7}),
    ("mixtral", {"attention_bias": True}),
    ("mixtral", {"router_aux_loss_coef": "x"}),
    ("mixtral", {"router_jitter_noise": 2.0}),
    ("qwen3_moe", {"decoder_sparse_step": 0}),
    ("qwen3_moe", {"mlp_only_layers": "all"}),
    ("qwen3_moe", {"shared_expert_intermediate_size": 8}, "shared_expert_intermediate_size"),
    ("qwen3_moe", {"norm_topk_prob": None}, "norm_topk_prob"),
    ("mixtral", {"num_experts_per_tok": None}, "num_experts_per_tok"),
    ("olmoe", {"clip_qkv": 8.0}),
    ("olmoe", {"num_experts_per_tok": 0}),
    ("qwen2_moe", {"layer_types": [NEAR, FAR]}, "sliding_window"),  # and use_sliding_window is false
    ("qwen2_moe", {"num_local_experts": 6}),
    ("deepseek_v3", {"attention_bias": True}),
    ("deepseek_v3", {"num_key_value_heads": 2}),
    ("deepseek_v3", {"scoring_func": "softmax"}),
    ("deepseek_v3", {"topk_method": "greedy"}),
    ("deepseek_v3", {"moe_layer_freq": 2}),
    ("deepseek_v3", {"n_shared_experts": 0}),
    ("deepseek_v3", {"first_k_dense_replace": -1}),
    ("deepseek_v3", {"quantization_config": {"quant_method": "fp8"}}),
    ("deepseek_v3 stretched", {"rope_parameters": STRETCHED | {"mscale_all_dim": "x"}}, "rope_parameters"),
    ("gpt_oss", {"swiglu_alpha": 1.0}),
    ("gpt_oss", {"experts_per_token": 3}),
    ("gpt_oss", {"initial_context_length": 17}),
    ("gpt_oss", {"sliding_window": None}),
    ("gpt_oss", {"hidden_act": "gelu"}),
]
EXPERT = {
    "mixtral": "model.layers.1.block_sparse_moe.experts.{}.w2.weight",
    "qwen3_moe": "model.layers.1.mlp.experts.{}.down_proj.weight",
    "olmoe": "model.layers.0.mlp.experts.{}.gate_proj.weight",
    "qwen2_moe": "model.layers.1.mlp.experts.{}.up_proj.weight",
    "deepseek_v3": "model.layers.2.mlp.experts.{}.down_proj.weight",
}


@pytest.fixture
def saved(tmp_path):
    def save(name):
        config, values = MIXTURES[name]
        made(config(**values)).save_pretrained(tmp_path)
        return tmp_path

    return save


def refusal(read, *args, **options):
    with pytest.raises(ArchlabError) as refused:
        read(*args, **options)
    return str(refused.value)


@pytest.mark.parametrize(("name", "values"), CHANGES)
def test_a_field_means_what_it_means_to_them(saved, change, name, values):
    folder, tokens = saved(name), ids(3, 24)
    before = ours(folder)(tokens).logits
    change(folder, **values)
    after = ours(folder)(tokens).logits
    assert (after - theirs(folder)(tokens).logits).abs().max() <= 1e-5
    assert (after - before).abs().max() > 1e-4


@pytest.mark.parametrize(("name", "values", "named"), [(*case, *case[1])[:3] for case in REFUSED])
def test_a_field_that_is_not_served_is_named(saved, change, name, values, named):
    folder = saved(name)
    import_hf(folder)
    change(folder, **values)
    assert re.search(rf"config\.json: {named}", refusal(import_hf, folder))


@pytest.mark.parametrize("name", EXPERT)
def test_swapped_experts_are_seen(saved, retensor, name):
    folder, expert = saved(name), EXPERT[name].format
    before = ours(folder)(ids(3, 24)).logits

    def swap(state):
        state[expert(0)], state[expert(1)] = state[expert(1)], state[expert(0)]

    retensor(folder, swap)
    after = ours(folder)(ids(3, 24)).logits
    assert (after - before).abs().max() > 1e-3
    assert (after - theirs(folder)(ids(3, 24)).logits).abs().max() <= 1e-4


def test_a_gate_in_the_place_of_what_it_gates_is_seen(saved, retensor):
    folder, name = saved("mixtral"), "model.layers.0.block_sparse_moe.experts.2.w{}.weight".format
    before = ours(folder)(ids(3, 24)).logits
    retensor(folder, lambda state: state.update({name(1): state[name(3)], name(3): state[name(1)]}))
    assert (ours(folder)(ids(3, 24)).logits - before).abs().max() > 1e-3


def test_gates_that_are_not_woven_are_seen(saved, retensor):
    folder, name = saved("gpt_oss"), "model.layers.0.mlp.experts.gate_up_proj"
    before = ours(folder)(ids(3, 24)).logits
    retensor(folder, lambda state: state.update({name: state[name].roll(1, -1)}))
    assert (ours(folder)(ids(3, 24)).logits - before).abs().max() > 1e-3


def test_a_preference_that_was_left_out_is_seen(saved, retensor):
    folder, name = saved("deepseek_v3"), "model.layers.1.mlp.gate.e_score_correction_bias"
    before = ours(folder)(ids(3, 24)).logits
    retensor(folder, lambda state: state[name].zero_())
    assert (ours(folder)(ids(3, 24)).logits - before).abs().max() > 1e-3


def test_tensors_of_experts_are_named_as_the_file_has_them(saved, retensor):
    name = "model.layers.1.block_sparse_moe.experts.{}.w{}.weight".format

    def edit(state):
        del state[name(0, 1)]
        state[name(3, 2)] = torch.ones(2, 2)
        state[name(4, 1)] = torch.ones(48, 32)

    folder = saved("mixtral")
    retensor(folder, edit)
    said = refusal(import_hf, folder)
    assert "3 tensors" in said and f"{name(0, 1)}: missing, expected (48, 32)" in said
    assert f"{name(3, 2)}: found (2, 2), expected (32, 48)" in said
    assert f"{name(4, 1)}: unexpected, (48, 32)" in said


def test_a_preference_keeps_its_precision(saved, tmp_path):
    folder = saved("deepseek_v3")
    before = tensors(folder)
    spec, state = import_hf(folder, dtype=torch.bfloat16)
    kept = {name for name, value in state.items() if value.dtype == torch.float32}
    assert kept == {f"layers.{layer}.ffn.router.preference" for layer in (1, 2)}
    model = build(spec)
    model.load_state_dict(state)
    export_hf(model, tmp_path / "out", dtype=torch.bfloat16)
    after = tensors(tmp_path / "out")
    name = "model.layers.1.mlp.gate.e_score_correction_bias"
    assert torch.equal(after[name], before[name])
    assert all(value.dtype == torch.bfloat16 for key, value in after.items() if not key.endswith("correction_bias"))


def test_layers_that_predict_further_tokens_are_passed_over(saved, retensor):
    folder = saved("deepseek_v3")
    before = ours(folder)(ids(2, 9)).logits
    retensor(folder, lambda state: state.update({"model.layers.61.eh_proj.weight": torch.ones(32, 64)}))
    assert torch.equal(ours(folder)(ids(2, 9)).logits, before)
    retensor(folder, lambda state: state.update({"model.layers.3.eh_proj.weight": torch.ones(32, 64)}))
    assert "model.layers.3.eh_proj.weight: unexpected" in refusal(import_hf, folder)


def test_deepseek_is_read_from_the_fields_of_its_first_release():
    config = {  # https://huggingface.co/deepseek-ai/DeepSeek-V3, its config.json, without the quantisation
        **{"hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128, "intermediate_size": 18432},
        **{"vocab_size": 129280, "max_position_embeddings": 163840, "rope_theta": 10000, "aux_loss_alpha": 0.001},
        **{"ep_size": 1, "moe_layer_freq": 1, "num_nextn_predict_layers": 1, "scoring_func": "sigmoid"},
        **{"seq_aux": True, "topk_method": "noaux_tc", "num_key_value_heads": 128, "pretraining_tp": 1},
    }
    yarn = {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "type": "yarn"}
    yarn |= {"original_max_position_embeddings": 4096}
    spec = find("deepseek_v3").spec(HFConfig(config | {"rope_scaling": yarn}))
    facts = Facts(spec)
    assert [facts.each("moe.name").count(name) for name in (None, "moe")] == [3, 58]
    assert facts["attention.scale"] == pytest.approx(192**-0.5 * 1.3688879454113936**2)  # 0.1 ln 40 + 1
    assert facts["moe.shared.d_ff"] == 2048 and facts["moe.preference"] and facts["position.pairing"] == "interleaved"


def test_balance_is_read_and_its_absence_too(saved):
    assert Facts(import_hf(saved("mixtral"))[0])["moe.balance"] == {"aux_loss": 0.001}
    spec = import_hf(saved("mixtral window, three of five, wide heads, tied, unbalanced"))[0]
    assert spec.slots["moe"].balance is False and Facts(spec)["moe.router.jitter"] == 0.1


SMALL = ["model.d_model=32", "model.n_layers=2", "model.attention.n_heads=4", "model/ffn=moe"]
SMALL += ["model.ffn.expert.d_ff=24"]


def of_ours(*overrides):
    return build(load(compose([*SMALL, *overrides])).model, seed=0).eval()


def test_what_only_training_would_notice_is_told(tmp_path):
    mine = of_ours("model.ffn.capacity_factor=1.25", "model.ffn.overflow=reroute", "model.ffn.balance.z_loss=0.001")
    told = export_hf(mine, tmp_path / "out")
    assert told.model_type == "mixtral" and fields(tmp_path / "out")["router_aux_loss_coef"] == 0.01
    assert all(word in str(told.left_out) for word in ("capacity_factor", "overflow", "z_loss"))
    assert (theirs(tmp_path / "out")(ids(2, 9)).logits - mine(ids(2, 9)).logits).abs().max() <= 1e-5


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("model.ffn.eval_capacity_factor=1.0", "eval_capacity_factor is 1.0, not None"),
        ("model.ffn.balance.bias_speed=0.001", "preference is True, not False"),
        ("model.ffn.scale=2.0", "scale is 2.0, not 1.0"),
        ("model.ffn.router.score=sigmoid", "router.score is sigmoid, not softmax"),
        ("model.ffn.router.bias=true", "router.bias is True, not False"),
    ],
)
def test_what_changes_the_function_is_refused(tmp_path, override, reason):
    mine = of_ours(override)
    said = refusal(export_hf, mine, tmp_path / "out", family="mixtral")
    assert reason in said
    assert reason in refusal(export_hf, mine, tmp_path / "out")  # of the closest families, not of those without experts


def test_experts_that_lie_apart_are_stacked_in_their_order(tmp_path):
    model = made(tf.MixtralConfig(**MIXTURES["mixtral"][1]))
    model.save_pretrained(tmp_path)
    stacked = import_hf(tmp_path)[1]["layers.0.ffn.experts.down.weight"]
    assert torch.equal(stacked, model.state_dict()["model.layers.0.mlp.experts.down_proj"])


@pytest.mark.parametrize(("values", "told"), [({"num_experts_per_tok": 9}, "9 different"), ({"n_group": 3}, "divide")])
def test_experts_that_no_router_could_choose_are_refused(saved, change, values, told):
    folder = saved("deepseek_v3")
    change(folder, **values)
    assert told in refusal(import_hf, folder) and str(folder) in refusal(import_hf, folder)


def test_layers_may_all_be_dense(tmp_path):
    kind, values = MIXTURES["deepseek_v3"]
    made(kind(**values | {"first_k_dense_replace": 9})).save_pretrained(tmp_path)
    tokens = ids(3, 24)
    assert (ours(tmp_path)(tokens).logits - theirs(tmp_path)(tokens).logits).abs().max() <= 1e-5


def test_jitter_that_reaches_their_experts_is_told_of(saved, change, tmp_path):
    folder = saved("mixtral")
    change(folder, router_jitter_noise=0.1)
    assert "jitter" in note_on(folder, import_hf(folder)[0])
    exported = export_hf(ours(folder), tmp_path / "out", family="mixtral")
    assert exported.left_out == ("moe.router.jitter is 0.1, not 0.0",)
    change(folder, router_jitter_noise=0.0)
    assert not note_on(folder, import_hf(folder)[0])
