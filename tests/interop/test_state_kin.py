"""Mixers that carry a state: where their knobs are found, which layers have one, and what of theirs isn't served."""

import pytest
import torch
import transformers as tf

from builder import ArchlabError, build, compose, export_hf, load
from builder.interop.bring import note_on
from builder.interop.facts import Facts, differences
from builder.interop.family import find
from builder.interop.form import Depthwise, Swapped
from builder.interop.hf_config import HFConfig
from builder.interop.hybrid import round_of
from builder.interop.send import choose
from tests.interop.cases_ssm import RECURRENT
from tests.interop.conftest import fields, ids, made, ours, theirs

SMALL = ["model.d_model=32", "model.n_layers=4", "model.train_length=16", "model.deploy_length=16"]
MIXED = [*SMALL, "model.attention.n_heads=4", "model.ffn.d_ff=48", "model.vocab_size=37"]
SSM = "+model.ssm={name: mamba, d_state: 5}"


def spec(*overrides):
    return load(compose(list(overrides))).model


def saved(path, case, **more):
    config, values = RECURRENT[case]
    made(config(**values | more)).save_pretrained(path)
    return path


def values_of(case, **more):
    config, values = RECURRENT[case]
    return config(**values | more).to_dict()


def read(values):
    return find(values["model_type"]).spec(HFConfig(values))


def back(facts, model_type):
    """The facts of what a family writes for a model."""
    return Facts(find(model_type).spec(HFConfig(find(model_type).write(facts))))


def test_a_mixer_without_scores_has_a_section_of_its_own():
    names = ["model.pattern=[ssm+ffn,looks+ffn]", "+model.looks={name: gqa, n_heads: 2}", "~model.attention"]
    facts = Facts(spec(*MIXED[:4], "model.ffn.d_ff=48", SSM, *names))
    assert (facts["ssm.name"], facts["attention.name"]) == ("mamba", "gqa")
    assert facts.each("ssm.d_state") == [5, None, 5, None] and facts.each("attention.n_heads") == [None, 2, None, 2]
    assert (facts["ssm.d_inner"], facts["ssm.dt_rank"], facts["ssm.norm"]) == (64, 2, None)


@pytest.mark.parametrize(
    ("ssm", "meant"),
    [
        ("{name: gated_delta, n_heads: 4, d_value: 6}", {"n_key_heads": 4, "d_key": 8, "d_value": 6}),
        ("{name: linear_attention, n_heads: 4, feature: none, divide: norm}", {"d_head": 8}),
        ("{name: mamba2, d_head: 8, norm: false}", {"d_inner": 64, "norm": False}),
        ("{name: gru}", {}),
    ],
)
def test_what_a_null_stands_for_is_filled_in(ssm, meant):
    given = spec(*SMALL, "model.pattern=[ssm]", f"+model.ssm={ssm}", "~model.attention", "~model.ffn")
    facts = Facts(given)
    assert {knob: facts[f"ssm.{knob}"] for knob in meant} == meant
    if given.slots["ssm"].model_dump().get("norm", False) is None:
        assert facts["ssm.norm"] == given.norm.model_dump()


def test_positions_that_nothing_asks_for_are_none():
    pure = [*SMALL, "model.pattern=[ssm]", SSM, "~model.attention", "~model.ffn"]
    assert choose(Facts(spec(*pure, "model.position.theta=7.0")))[0].model_type == "mamba"
    with pytest.raises(ArchlabError, match=r"position\.name is sinusoidal"):
        choose(Facts(spec(*pure, "model/position=sinusoidal")))
    mixed = Facts(spec(*MIXED, SSM, "model.pattern=[ssm+ffn,attention+ffn]"))
    assert mixed["position.name"] == mixed["attention.position.name"] == "rope"


def test_only_training_notices_how_steps_are_drawn():
    pure = [*SMALL, "model.pattern=[ssm]", "~model.attention", "~model.ffn"]
    one = Facts(spec(*pure, "+model.ssm={name: mamba2, d_head: 8}"))
    two = Facts(spec(*pure, "+model.ssm={name: mamba2, d_head: 8, dt_min: 0.01, dt_max: 0.2, chunk: 8}"))
    changed, told = differences(one, two)
    assert not changed and len(told) == 3
    three = Facts(spec(*pure, "+model.ssm={name: mamba2, d_head: 8, dt_limit: [0.01, 0.2]}"))
    assert differences(one, three)[0]


@pytest.mark.parametrize("attends", [[], [0, 1, 2, 3, 4], [0, 3], [2]])
@pytest.mark.parametrize("family", ["bamba", "jamba"])
def test_which_layers_attend_goes_there_and_back(family, attends):
    """transformers gives up a cache without attentions, so that test_families.py can't ask it there."""
    layers = {"attn_layer_indices": attends} if family == "bamba" else _period(attends, 5)
    wanted = Facts(read(values_of(family, **layers)))
    assert [layer for layer, name in enumerate(wanted.each("attention.name")) if name] == attends
    if len(attends) == 5:
        with pytest.raises(KeyError, match="ssm"):  # it is a Transformer, and written as one
            back(wanted, family)
    else:
        assert differences(wanted, back(wanted, family)) == ([], [])


def _period(layers, n_layers):
    found = round_of([layer in layers for layer in range(n_layers)])
    return {"attn_layer_period": found[0], "attn_layer_offset": found[1]}


def test_layers_without_a_period_are_no_jamba():
    pattern = "model.pattern=[attention+ffn,attention+ffn,ssm+ffn,ssm+ffn]"
    ssm = "+model.ssm={name: mamba, d_state: 5, norm: {name: rmsnorm}}"
    facts = Facts(spec(*MIXED, "model/position=none", ssm, pattern))
    with pytest.raises(ArchlabError, match=r"jamba can't express this model(.|\n)*attention"):
        choose(facts, "jamba")
    with pytest.raises(ArchlabError, match=r"bamba: it needs ssm\.d_head"):
        choose(facts, "bamba")
    assert round_of([True, True, False, False]) is None


def test_hybrids_without_attentions_compute_the_same(tmp_path):
    tokens = ids(2, 12)
    for case, layers in (("bamba", {"attn_layer_indices": None}), ("jamba", _period([], 5))):
        folder = saved(tmp_path / case, case, **layers)
        right = theirs(folder)(tokens, use_cache=False).logits
        assert (ours(folder)(tokens).logits - right).abs().max() <= 1e-4


def test_an_infinite_bound_is_none_however_it_is_spelt():
    for bounds in ([0.0, float("inf")], [0.0, {"__float__": "Infinity"}], None):
        assert read(values_of("mamba2") | {"time_step_limit": bounds}).slots["ssm"].dt_limit is None


@pytest.mark.parametrize(
    ("case", "changed", "named"),
    [
        ("mamba", {"hidden_act": "gelu"}, "hidden_act: found 'gelu'"),
        ("mamba", {"expand": 1.5}, "expand: found 1.5"),
        ("mamba", {"intermediate_size": "64"}, "intermediate_size: found '64'"),
        ("mamba", {"time_step_rank": "all"}, "time_step_rank (ours: ssm.dt_rank): found 'all'"),
        ("mamba", {"time_step_min": 0.5}, "time_step_min (ours: ssm.dt_min): found 0.5"),
        ("falcon_mamba", {"mixer_rms_eps": 0.0}, "mixer_rms_eps (ours: ssm.norm.eps): found 0.0"),
        ("mamba2", {"use_bias": True}, "use_bias: found true"),
        ("mamba2", {"head_dim": 4}, "head_dim: found 4"),
        ("mamba2", {"num_heads": 7}, "num_heads: found 7"),
        ("mamba2", {"time_step_limit": [0.1, float("inf")]}, "time_step_limit: found [0.1, inf]"),
        ("mamba2", {"time_step_limit": 3}, "time_step_limit: found 3"),
        ("mamba2", {"time_step_limit": [0.9, 0.5]}, "time_step_limit (ours: ssm.dt_limit): found "),
        ("bamba", {"attn_layer_indices": "1"}, "attn_layer_indices: found '1'"),
        ("bamba", {"attn_rotary_emb": 8}, "attn_rotary_emb: found 8"),
        ("bamba", {"partial_rotary_factor": 1.0}, "partial_rotary_factor: found 1.0"),
        ("bamba", {"mamba_proj_bias": True}, "mamba_proj_bias: found true"),
        ("jamba", {"attn_layer_period": 0}, "attn_layer_period: found 0"),
        ("jamba", {"expert_layer_offset": 2}, "expert_layer_offset: found 2"),
        ("jamba", {"hidden_act": "gelu"}, "hidden_act: found 'gelu'"),
        ("jamba", {"mamba_inner_layernorms": False}, "mamba_inner_layernorms: found false"),
    ],
)
def test_what_is_not_served_is_refused_by_name(case, changed, named):
    values = values_of(case)
    read(values)
    with pytest.raises(ArchlabError) as refused:
        read(values | changed)
    assert f"config.json: {named}" in str(refused.value)


def test_what_published_files_say_beside_is_passed_over():
    beside = {"fused_add_norm": True, "rms_norm": True, "ssm_cfg": {}, "n_layer": 2, "residual_in_fp32": False}
    assert read(values_of("mamba") | beside) == read(values_of("mamba"))
    assert read(values_of("bamba") | {"attn_rotary_emb": 4}) == read(values_of("bamba"))


def test_its_width_is_stated_by_itself_before_it_is_by_a_factor():
    """As published: Falcon Mamba 7B says 16 times 4096, and 8192."""
    values = values_of("falcon_mamba")
    assert (values["expand"], values["intermediate_size"]) == (16, 40)
    assert read(values).slots["ssm"].d_inner == 40
    del values["intermediate_size"]
    assert read(values).slots["ssm"].d_inner == 16 * 32


def test_a_length_that_no_field_states_is_the_papers_and_no_limit(tmp_path):
    for case, length in (("mamba", 2048), ("falcon_mamba", 8192)):
        folder = saved(tmp_path / case, case)
        assert "max_position_embeddings" not in fields(folder)
        given = read(fields(folder))
        assert (given.train_length, given.deploy_length) == (length, length)
        assert f"deploy_length={length} is no limit" in note_on(folder, given)
    folder = saved(tmp_path / "bamba", "bamba")
    assert not note_on(folder, read(fields(folder)))


def test_a_length_of_ours_comes_back(tmp_path):
    pure = [*SMALL, "model.pattern=[ssm]", SSM, "~model.attention", "~model.ffn", "model.vocab_size=37"]
    mine = build(spec(*pure), seed=0)
    made = export_hf(mine, tmp_path / "out")
    assert made.model_type == "mamba" and not any("length" in told for told in made.left_out)
    assert tf.AutoConfig.from_pretrained(tmp_path / "out").max_position_embeddings == 16


def test_the_gate_comes_first_in_theirs():
    joined = torch.tensor([[1.0], [2.0], [3.0], [4.0]]), torch.tensor([[5.0]])
    assert Swapped().to_theirs(joined).flatten().tolist() == [3, 4, 1, 2, 5]
    assert Depthwise().to_theirs([joined[0]]).shape == (4, 1, 1)
