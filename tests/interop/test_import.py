"""What an import refuses, by name and all at once, and what it may pass over."""

import pytest
import torch
import transformers as tf
from safetensors.torch import save_file

from builder import ArchlabError, import_hf
from builder.interop.hf_config import HFConfig
from tests.interop.cases import GPT2, LLAMA
from tests.interop.conftest import ids, made, ours, tensors


@pytest.fixture
def llama(tmp_path):
    made(tf.LlamaConfig(**LLAMA)).save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture
def tied(tmp_path):
    made(tf.LlamaConfig(**LLAMA, tie_word_embeddings=True)).save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture
def gpt2(tmp_path):
    made(tf.GPT2Config(**GPT2)).save_pretrained(tmp_path)
    return tmp_path


def refusal(folder):
    with pytest.raises(ArchlabError) as refused:
        import_hf(folder)
    return str(refused.value)


def test_it_is_read_as_it_stands(llama):
    spec, state = import_hf(llama)
    assert (spec.train_length, spec.deploy_length, spec.tie_embeddings) == (64, 64, False)
    assert spec.init.model_dump() == {"name": "normal", "std": 0.02}
    assert all(value.dtype == torch.float32 and value.is_contiguous() for value in state.values())
    assert not torch.equal(state["head.weight"], state["embedding.weight"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sliding_window", 32),
        ("clip_qkv", 8.0),
        ("use_qk_norm", True),
        ("hidden_act", "mish"),
        ("rope_scaling", {"type": "mrope", "mrope_section": [1, 1, 2]}),
        ("rope_theta", 7.0),  # while rope_parameters says 10000
        ("quantization_config", {"quant_method": "awq"}),
        ("is_encoder_decoder", True),
    ],
)
def test_a_field_that_nobody_serves_is_refused_by_name(llama, change, field, value):
    change(llama, **{field: value})
    said = refusal(llama)
    assert f"config.json: {field}" in said and "rule: " in said
    assert "1 problem " in said or field == "rope_scaling"


def test_all_fields_are_refused_together(gpt2, change):
    change(gpt2, scale_attn_by_inverse_layer_idx=True, scale_attn_weights=False, n_ctx=7, activation_function="mish")
    said = refusal(gpt2)
    assert all(word in said for word in ("4 problems", "scale_attn_by_inverse", "scale_attn_weights", "n_ctx", "mish"))


@pytest.mark.parametrize("field", ["add_cross_attention", "scale_attn_by_inverse_layer_idx"])
def test_another_model_in_its_clothes_is_refused(gpt2, change, field):
    change(gpt2, **{field: True})
    assert f"{field}: found true" in refusal(gpt2)


def test_a_field_that_changes_nothing_is_passed_over(gpt2, change):
    before = ours(gpt2)(ids(2, 9)).logits
    change(gpt2, reorder_and_upcast_attn=True, summary_type="mean", n_ctx=64, sliding_window=None, pruned_heads={})
    assert torch.equal(ours(gpt2)(ids(2, 9)).logits, before)


def test_a_field_that_a_family_forgot_is_refused():
    config = HFConfig({"attention_bias": True, "rope_scaling": {"factor": 2.0, "rope_type": "linear"}})
    config.get("rope_scaling.rope_type")
    with pytest.raises(ArchlabError) as refused:
        config.finish({}, "llama")
    assert "attention_bias: found true" in str(refused.value)
    assert "rope_scaling.factor: found 2.0" in str(refused.value) and "rope_type" not in str(refused.value)


def test_an_unknown_model_type_is_refused_with_the_nearest(llama, change):
    change(llama, model_type="lama")
    assert "did you mean llama?" in refusal(llama) and "gpt2" in refusal(llama)


def test_a_required_field_is_named(llama, change):
    change(llama, hidden_size=None)
    assert "config.json: hidden_size: found nothing" in refusal(llama)


def test_old_and_new_spelling_of_rope_mean_the_same(llama, change):
    change(llama, rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    new = import_hf(llama)[0]
    change(llama, rope_parameters=None, rope_theta=500.0, rope_scaling=None)
    assert import_hf(llama)[0] == new and new.position.theta == 500.0


def test_tensors_that_do_not_fit_are_listed_together(llama, retensor):
    def edit(state):
        del state["model.norm.weight"]
        state["model.layers.1.self_attn.k_proj.weight"] = torch.ones(32, 32)
        state["model.layers.2.mlp.up_proj.weight"] = torch.ones(48, 32)

    retensor(llama, edit)
    said = refusal(llama)
    assert "3 tensors" in said
    assert "model.norm.weight: missing, expected (32)" in said
    assert "model.layers.1.self_attn.k_proj.weight: found (32, 32), expected (16, 32)" in said
    assert "model.layers.2.mlp.up_proj.weight: unexpected, (48, 32)" in said


def test_swapped_queries_and_keys_are_seen(tmp_path, retensor):
    model = made(tf.LlamaConfig(**LLAMA | {"num_key_value_heads": 4}))
    model.save_pretrained(tmp_path)
    expected = model(ids(3, 24)).logits
    assert (ours(tmp_path)(ids(3, 24)).logits - expected).abs().max() <= 1e-4
    name = "model.layers.0.self_attn.{}_proj.weight"

    def swap(state):
        state[name.format("q")], state[name.format("k")] = state[name.format("k")], state[name.format("q")]

    retensor(tmp_path, swap)
    assert (ours(tmp_path)(ids(3, 24)).logits - expected).abs().max() > 1e-3


def test_buffers_are_passed_over(gpt2, retensor):
    before = ours(gpt2)(ids(2, 9)).logits
    retensor(gpt2, lambda state: state.update({"transformer.h.0.attn.bias": torch.ones(1, 1, 64, 64)}))
    assert torch.equal(ours(gpt2)(ids(2, 9)).logits, before)


def test_a_file_saved_without_its_head_is_read(gpt2):
    before = ours(gpt2)(ids(2, 9)).logits
    bare = {name.removeprefix("transformer."): value for name, value in tensors(gpt2).items()}
    save_file(bare | {"h.0.attn.bias": torch.ones(1, 1, 64, 64)}, gpt2 / "model.safetensors")
    assert torch.equal(ours(gpt2)(ids(2, 9)).logits, before)


def test_tied_with_the_same_head_in_the_file(tied, retensor):
    assert "lm_head.weight" not in tensors(tied)
    retensor(tied, lambda state: state.update({"lm_head.weight": state["model.embed_tokens.weight"].clone()}))
    model = ours(tied)
    assert model.head.weight is model.embedding.weight


def test_tied_with_another_head_in_the_file_is_refused(tied, retensor):
    retensor(tied, lambda state: state.update({"lm_head.weight": state["model.embed_tokens.weight"] + 1}))
    assert "lm_head.weight: differs from the embedding" in refusal(tied)


def test_untied_without_a_head_is_refused(tied, change):
    change(tied, tie_word_embeddings=False)
    assert "lm_head.weight: missing, expected (37, 32), and tie_word_embeddings is false" in refusal(tied)


def test_shards_are_read_as_one(tmp_path):
    model = made(tf.LlamaConfig(**LLAMA))
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert (ours(tmp_path)(ids(2, 9)).logits - model(ids(2, 9)).logits).abs().max() <= 1e-4
    next(tmp_path.glob("*.safetensors")).unlink()
    assert "can't be read" in refusal(tmp_path)


def test_half_precision_is_widened(llama, retensor):
    retensor(llama, lambda state: state.update({name: value.bfloat16() for name, value in state.items()}))
    assert {value.dtype for value in import_hf(llama)[1].values()} == {torch.float32}
    assert {value.dtype for value in import_hf(llama, dtype=torch.bfloat16)[1].values()} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "is no JSON"),
        (lambda folder: (folder / "config.json").write_text("[]"), "holds no fields"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"torn"), "can't be read"),
        (
            lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
            "pytorch_model.bin may run",
        ),
    ],
)
def test_a_damaged_folder_is_named(llama, spoil, said):
    spoil(llama)
    assert said in refusal(llama)
