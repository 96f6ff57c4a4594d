"""The families of GPT-NeoX's time: what they refuse, old spellings that they read, and that a difference is seen."""

import pytest
import torch
from transformers.models.bloom.modeling_bloom import _get_alibi_slopes as bloom_slopes
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor as mpt_bias

from builder import ArchlabError, build, import_hf
from builder.interop.facts import Facts
from builder.interop.family import find
from builder.interop.hf_config import HFConfig
from tests.interop.cases import CASES
from tests.interop.conftest import fields, ids, made, ours, theirs


@pytest.fixture
def saved(tmp_path):
    """saved(case): the folder of a tiny model of that case."""

    def save(case):
        config, values = CASES[case]
        made(config(**values)).save_pretrained(tmp_path)
        return tmp_path

    return save


@pytest.mark.parametrize(
    ("case", "path", "value"),
    [
        ("gpt_neox", "head_dim", 16),
        ("gpt_neox", "hidden_act", "mish"),
        ("gptj", "rotary", False),
        ("gptj", "rotary_dim", 12),
        ("gptj", "scale_attn_weights", False),
        ("phi", "head_dim", 16),
        ("bloom", "apply_residual_connection_post_layernorm", True),
        ("bloom", "slow_but_exact", True),
        ("bloom", "n_inner", 40),
        ("starcoder2", "mlp_type", "gated"),
        ("starcoder2", "norm_type", "rms_norm"),
        ("starcoder2", "rope_parameters.partial_rotary_factor", 0.5),
        ("falcon", "num_ln_in_parallel_attn", 2),
        ("falcon", "rope_parameters.partial_rotary_factor", 0.5),
        ("falcon new", "parallel_attn", False),
        ("falcon alibi, serial", "num_kv_heads", 2),
        ("falcon", "apply_residual_connection_post_layernorm", True),
        ("mpt", "no_bias", False),
        ("mpt", "expansion_ratio", 2),
        ("mpt", "logit_scale", "inv_sqrt_d_model"),
        ("mpt", "norm_type", "rmsnorm"),
        ("mpt", "attn_config.alibi", False),
        ("mpt", "attn_config.alibi_bias_max", 16),
        ("mpt", "attn_config.clip_qkv", 6.0),
        ("mpt", "attn_config.qk_ln", True),
        ("mpt", "attn_config.prefix_lm", True),
        ("mpt", "attn_config.attn_type", "multiquery_attention"),
    ],
)
def test_a_field_that_would_change_the_model_is_refused_by_name(saved, change, case, path, value):
    folder = saved(case)
    import_hf(folder)
    section, _, key = path.rpartition(".")
    change(folder, **({section: fields(folder)[section] | {key: value}} if section else {key: value}))
    with pytest.raises(ArchlabError, match="1 problem ") as refused:
        import_hf(folder)
    assert f"config.json: {path}: found" in str(refused.value)


@pytest.mark.parametrize(
    ("case", "old", "facts"),
    [
        (
            "gpt_neox",
            {"rope_parameters": None, "rotary_pct": 0.5, "rotary_emb_base": 500, "hidden_dropout_prob": 0.0},
            {"position.fraction": 0.5, "position.theta": 500.0},
        ),
        ("phi", {"rope_parameters": None, "partial_rotary_factor": 0.25}, {"position.fraction": 0.25}),
        ("phi", {"rope_parameters": None}, {"position.fraction": 0.5}),
        (
            "bloom",
            {"n_layer": None, "n_head": None, "hidden_size": None, "n_embed": 24, "num_attention_heads": 4}
            | {"num_hidden_layers": 2, "seq_length": 96, "pretraining_tp": 4, "offset_alibi": 100},
            {"d_model": 24, "attention.n_heads": 4, "train_length": 96, "ffn.d_ff": 96},
        ),
        ("falcon", {"rope_parameters": None, "num_kv_heads": None}, {"attention.n_kv_heads": 1}),
        ("mpt", {"attn_config": None, "init_config": {"fan_mode": "fan_in"}, "verbose": 0}, {"position.name": "alibi"}),
        ("mpt", {"attn_config": {"attn_pdrop": 0.1, "alibi_bias_max": 8}}, {"attention.dropout": 0.1}),
    ],
)
def test_files_of_old_are_read(saved, case, old, facts):
    values = fields(saved(case)) | old
    seen = Facts(find(values["model_type"]).spec(HFConfig(values)))
    assert {path: seen[path] for path in facts} == facts


@pytest.mark.parametrize(
    ("case", "slot", "changed"),
    [
        ("gpt_neox", "position", {"fraction": 0.5}),
        ("gpt_neox", "position", {"pairing": "interleaved", "fraction": 0.5}),
        ("gptj", "position", {"pairing": "half"}),
        ("bloom six heads, untied", "position", {"max_exponent": 6.0}),
        ("falcon alibi, eight heads", "position", {"multiplier": 1.0}),
        ("mpt three heads", "position", {"max_exponent": 6.0}),
        ("phi tied, grouped, normed queries", "attention", {"qk_norm_at": "after"}),
        ("starcoder2 window, no biases, one KV head, untied", "attention", {"window": 5}),
        ("mpt six heads, untied, another scale", "attention", {"scale": None}),
    ],
)
def test_another_model_is_seen(saved, case, slot, changed):
    folder = saved(case)
    spec, state = import_hf(folder)
    other = getattr(spec, slot).model_copy(update=changed)
    mine = build(spec.model_copy(update={slot: other}) if slot == "position" else _with(spec, slot, other)).eval()
    mine.load_state_dict(state)
    wanted = theirs(folder)(ids(3, 24)).logits
    assert (ours(folder)(ids(3, 24)).logits - wanted).abs().max() <= 1e-5
    assert (mine(ids(3, 24)).logits - wanted).abs().max() > 1e-4


def _with(spec, slot, config):
    copy = spec.model_copy()
    object.__setattr__(copy, "__pydantic_extra__", dict(spec.slots) | {slot: config})
    return copy


@pytest.mark.parametrize(("case", "exponents"), [("three heads", [4, 8, 2]), ("six heads", [2, 4, 6, 8, 1, 3])])
def test_slopes_for_heads_that_are_no_power_of_two(saved, case, exponents):
    """Bloom and MPT make them in different ways, and both come to 2^-e, in this order."""
    wanted, heads = torch.tensor([2.0**-exponent for exponent in exponents]), len(exponents)
    for family in ("bloom", "mpt"):
        (found,) = (name for name in CASES if name.startswith(f"{family} {case}"))
        assert torch.allclose(ours(saved(found)).positions["model"].slopes(torch.arange(heads)), wanted)
    assert torch.allclose(bloom_slopes(heads, wanted.device), wanted)
    assert torch.allclose(-mpt_bias(heads, 2)[:, 0, 0], wanted)  # of the key one before
