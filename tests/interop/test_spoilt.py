"""Folders that someone wrote by hand or spoilt: refused by file and field; what transformers ignores never counts."""

import json
import time

import pytest
import transformers as tf

from builder import ArchlabError, import_hf
from builder.interop.bring import note_on
from builder.interop.family import find
from builder.interop.hf_config import HFConfig
from builder.interop.run_folder import import_run
from builder.interop.tokenizer import read_tokenizer
from tests.interop.cases import CASES, LLAMA
from tests.interop.conftest import fields, ids, made, ours, theirs


@pytest.fixture
def saved(tmp_path):
    """saved(case): the folder of a tiny model of that case."""

    def save(case, **more):
        config, values = CASES[case]
        made(config(**values | more)).save_pretrained(tmp_path)
        return tmp_path

    return save


@pytest.fixture
def llama(tmp_path):
    made(tf.LlamaConfig(**LLAMA)).save_pretrained(tmp_path)
    return tmp_path


def refusal(read, *args):
    with pytest.raises(ArchlabError) as refused:
        read(*args)
    return str(refused.value)


def respell(folder, **old):
    """Takes rope_parameters out of a config.json and puts fields of old in."""
    values = {key: value for key, value in fields(folder).items() if key != "rope_parameters"}
    (folder / "config.json").write_text(json.dumps(values | old))


def same(folder):
    return (ours(folder)(ids(3, 24)).logits - theirs(folder)(ids(3, 24)).logits).abs().max() <= 1e-5


LINEAR = {"rope_type": "linear", "factor": 2.0}


@pytest.mark.parametrize(
    ("case", "old", "passed_over"),
    [
        ("gpt_neox", {"rotary_pct": 0.5}, {"rope_theta": 100.0}),
        ("gpt_neox", {"rotary_pct": 0.5, "rotary_emb_base": 77}, {"rope_theta": 100.0}),
        ("gpt_neox", {"rotary_emb_base": 77}, {"partial_rotary_factor": 0.5}),
        ("phi", {"rope_theta": 100.0}, {"rotary_emb_base": 77}),
        ("phi", {"rope_theta": 100.0}, {"rotary_pct": 0.25}),
        ("mistral", {"rope_theta": 100.0}, {"rotary_emb_base": 77}),
        ("mistral", {"rope_scaling": LINEAR}, {"rope_parameters": LINEAR | {"rope_theta": 100.0}}),
        (
            "mistral",
            {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
            {"rope_parameters": LINEAR | {"factor": 4}},
        ),
    ],
)
def test_a_field_that_transformers_passes_over_is_refused(saved, case, old, passed_over):
    folder = saved(case)
    respell(folder, **old)
    assert same(folder)
    wanted = theirs(folder)(ids(3, 24)).logits
    respell(folder, **old, **passed_over)
    assert (theirs(folder)(ids(3, 24)).logits == wanted).all()  # they do pass over it
    said = refusal(import_hf, folder)
    assert f"config.json: {next(iter(passed_over))}" in said and "passes over" in said


def test_the_original_length_beside_the_section_counts(saved):
    folder = saved("mistral")
    respell(folder, rope_scaling={"rope_type": "yarn", "factor": 4.0})
    assert same(folder)
    before = ours(folder)(ids(3, 24)).logits
    respell(folder, rope_scaling={"rope_type": "yarn", "factor": 4.0}, original_max_position_embeddings=16)
    assert same(folder) and (ours(folder)(ids(3, 24)).logits - before).abs().max() > 1e-4


def test_what_is_passed_over_may_say_the_same(saved):
    folder = saved("gpt_neox")
    respell(folder, rotary_pct=0.5, rotary_emb_base=77.0, rope_theta=77.0, partial_rotary_factor=0.5)
    assert same(folder) and import_hf(folder)[0].position.theta == 77.0


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"rope_parameters": {"rope_type": "default", "rope_theta": "x"}}, "rope_parameters.rope_theta: found 'x'"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": True}}, "rope_parameters.rope_theta: found true"),
        ({"rope_parameters": {"rope_type": ["yarn"], "factor": 2.0}}, "rope_parameters.rope_type: found ['yarn']"),
        ({"rope_parameters": "yarn"}, "rope_parameters: found 'yarn'\n    rule: a section of fields"),
        ({"rope_parameters": LINEAR | {"factor": "x"}}, "rope_parameters (ours: position.scaling.factor): found 'x'"),
        ({"model_type": ["llama"]}, "model_type: found ['llama']"),
        ({"model_type": None}, "model_type: found None"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps (ours: norm.eps): found nan\n    rule: must be a finite number"),
        ({"hidden_size": "32"}, "hidden_size: found '32'\n    rule: a whole number of at least 1 (ours: d_model)"),
        ({"num_attention_heads": 0}, "num_attention_heads: found 0"),
        ({"num_attention_heads": {"a": 1}}, "num_attention_heads: found {'a': 1}"),
        (
            {"num_attention_heads": 3},
            'must divide num_attention_heads=3: one of 1, 3\n    fix:  "num_key_value_heads": 1',
        ),
        ({"num_hidden_layers": "2"}, "num_hidden_layers: found '2'"),
        ({"attention_dropout": 2.0}, "attention_dropout (ours: attention.dropout): found 2.0"),
    ],
)
def test_a_wrong_value_is_refused_by_file_and_field(llama, change, values, named):
    import_hf(llama)
    change(llama, **values)
    assert f"{llama / 'config.json'}: " in (said := refusal(import_hf, llama)) and named in said


def test_what_to_write_is_said_of_their_fields():
    small = {"relative_attention_max_distance": 16, "relative_attention_num_buckets": 32}
    said = refusal(find("t5").spec, HFConfig(tf.T5Config(**small).to_dict()))
    assert "relative_attention_max_distance (ours: position.max_distance): found 16" in said
    assert "half of relative_attention_num_buckets=32" in said
    assert said.endswith('fix:  "relative_attention_max_distance": 128')


@pytest.mark.parametrize("case", ["bloom", "falcon", "gptj", "mpt", "qwen2"])
@pytest.mark.parametrize("value", ["4", {"a": 1}, 0, True])
def test_sizes_that_others_are_computed_from(saved, change, case, value):
    folder = saved(case)
    names = ("hidden_size", "n_embd", "d_model"), ("num_attention_heads", "n_head", "n_heads")
    for several in names:
        before = fields(folder)
        name = next(name for name in several if name in before)
        change(folder, **{name: value})
        assert f"{folder / 'config.json'}: {name}: found" in refusal(import_hf, folder)
        change(folder, **before)
    import_hf(folder)


@pytest.mark.parametrize("case", ["llama", "gpt2", "mpt", "gpt_neox", "qwen2"])
def test_layers_are_counted_before_a_model_is_made(saved, change, case):
    folder = saved(case)
    import_hf(folder)
    name = next(name for name in ("num_hidden_layers", "n_layer", "n_layers") if name in fields(folder))
    change(folder, **{name: 1_000_000})
    began = time.monotonic()
    said = refusal(import_hf, folder)
    assert f"config.json: {name}: found 1000000" in said and "layers" in said
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("name", ["../good/model.safetensors", "/model.safetensors", 7, "a/../../model.safetensors"])
def test_a_shard_outside_the_folder_is_refused(llama, name):
    file = llama / "model.safetensors.index.json"
    (llama / "model.safetensors").rename(llama / "one.safetensors")
    file.write_text(json.dumps({"weight_map": {"lm_head.weight": "one.safetensors"}}))
    import_hf(llama)
    file.write_text(json.dumps({"weight_map": {"lm_head.weight": name, "model.norm.weight": "one.safetensors"}}))
    assert f"{file}: weight_map: found {name!r}" in refusal(import_hf, llama)


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("tokenizer.json", "{", "which is no tokenizer.json"),
        ("generation_config.json", "{", "is no JSON"),
        ("generation_config.json", "[]", "holds no fields"),
    ],
)
def test_a_broken_tokenizer_is_named(llama, file, text, named):
    (llama / "tokenizer.json").write_text("{}")
    (llama / file).write_text(text)
    assert str(llama / file) in (said := refusal(read_tokenizer, llama, 37)) and named in said


def test_the_reader_is_told_where_falcons_alibi_is_rounded(saved, tmp_path):
    folder = saved("falcon alibi, serial", vocab_size=258, max_position_embeddings=600)
    assert "bfloat16" in import_run(folder, tmp_path / "runs" / "falcon").note


def test_there_is_no_such_note_where_it_is_exact(saved):
    folder = saved("falcon alibi, serial", max_position_embeddings=256)
    assert note_on(folder, import_hf(folder)[0]) == ""
