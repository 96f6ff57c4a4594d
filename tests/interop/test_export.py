"""A model of ours is written as the first family that says everything it computes, or refused with the reasons."""

import pytest
import torch

from builder import ArchlabError, build, compose, export_hf, load
from builder.interop import family, rule
from builder.interop.form import Conv1D, Depthwise, Grouped, Row, Rows, Swapped, Woven
from tests.interop.conftest import fields, ids, ours, tensors

SMALL = [
    "model.d_model=32",
    "model.n_layers=2",
    "model.train_length=16",
    "model.attention.n_heads=4",
    "model.ffn.d_ff=48",
]
GPT2 = [
    "model/attention=mha",
    "model/norm=layernorm",
    "model/position=learned",
    "model/ffn=mlp",
    "model.attention.bias=true",
]


def model(*overrides):
    return build(load(compose([*SMALL, "model.deploy_length=16", *overrides])).model, seed=0).eval()


@pytest.mark.parametrize(("overrides", "model_type"), [([], "llama"), ([*GPT2, "model.ffn.activation=gelu"], "gpt2")])
def test_the_default_models_find_their_family(tmp_path, quietly_loaded, overrides, model_type):
    mine, out = model(*overrides), tmp_path / "a/b"
    assert export_hf(mine, out).model_type == model_type
    tokens = ids(2, 16)
    assert (quietly_loaded(out)(tokens).logits - mine(tokens).logits).abs().max() <= 1e-5
    assert [path.name for path in out.parent.iterdir()] == ["b"]  # no draft is left
    assert (ours(out)(tokens).logits - mine(tokens).logits).abs().max() <= 1e-6


def test_what_only_training_would_notice_is_told(tmp_path):
    made = export_hf(model("model.block.dropout=0.1", "model.deploy_length=32"), tmp_path / "out", family="llama")
    assert any("block.dropout is 0.1" in sentence for sentence in made.left_out)
    assert fields(tmp_path / "out")["max_position_embeddings"] == 32


def test_a_model_that_no_family_says_is_refused_with_the_reasons(tmp_path):
    with pytest.raises(ArchlabError) as refused:
        export_hf(model("model/block=post_norm", "model/norm=layernorm"), tmp_path / "out")
    said = str(refused.value)
    assert "no family can express this model" in said and "block.name is post_norm, not pre_norm" in said
    assert not list(tmp_path.iterdir())


def test_a_family_that_was_asked_for_is_refused_alone(tmp_path):
    with pytest.raises(ArchlabError, match=r"family: gpt2 can't express this model(.|\n)*position.name is rope"):
        export_hf(model(), tmp_path / "out", family="gpt2")
    with pytest.raises(ArchlabError, match=r"^family: found 'llamma'.*did you mean llama"):
        export_hf(model(), tmp_path / "out", family="llamma")


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "kept.txt").touch()
    with pytest.raises(ArchlabError, match="holds something already"):
        export_hf(model(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]


def test_both_spellings_of_rope_are_written(tmp_path):
    export_hf(model("model.position.theta=500.0"), tmp_path / "out")
    written = fields(tmp_path / "out")
    assert written["rope_theta"] == written["rope_parameters"]["rope_theta"] == 500.0
    assert written["dtype"] == written["torch_dtype"] == "float32" and written["head_dim"] == 8


def test_bfloat16_goes_through_unchanged(tmp_path):
    mine = model("model.tie_embeddings=false").bfloat16()
    export_hf(mine, tmp_path / "one", dtype=torch.bfloat16)
    export_hf(ours(tmp_path / "one"), tmp_path / "two", dtype=torch.bfloat16)  # by way of float32
    one, two = tensors(tmp_path / "one"), tensors(tmp_path / "two")
    assert all(value.dtype == torch.bfloat16 and torch.equal(value, two[name]) for name, value in one.items())


@pytest.mark.parametrize(
    ("form", "shapes"),
    [
        (Rows(), [(8, 5), (4, 5), (4, 5)]),
        (Rows(), [(8,)]),
        (Conv1D(), [(8, 5), (4, 5), (4, 5)]),
        (Conv1D(), [(8,), (4,), (4,)]),
        (Grouped(2), [(8, 5), (4, 5), (4, 5)]),
        (Grouped(2), [(8,), (8,), (8,)]),
        (Woven(), [(3, 4, 5), (3, 4, 5)]),
        (Woven(), [(3, 4), (3, 4)]),
        (Woven(), [(3, 4, 5)]),
        (Swapped(), [(8, 5), (3, 5), (3, 5)]),
        (Depthwise(), [(8, 4)]),
        (Depthwise(), [(8,)]),
        (Row(), [(8,)]),
    ],
)
def test_a_form_is_undone_by_its_inverse(form, shapes):
    parts = [torch.randn(shape) for shape in shapes]
    back = form.to_ours(form.to_theirs(parts), [part.shape for part in parts])
    assert all(torch.equal(one, other) for one, other in zip(parts, back, strict=True))


def test_groups_lie_as_in_falcon_and_neox():
    """Two KV heads of width 1: with two queries each [q0 q1 k0 v0 q2 q3 k1 v1]; with one each [q0 k0 v0 q1 k1 v1]."""
    q, k, v = torch.arange(4.0), torch.tensor([10.0, 11.0]), torch.tensor([20.0, 21.0])
    assert Grouped(1).to_theirs([q, k, v]).tolist() == [0, 1, 10, 20, 2, 3, 11, 21]
    assert Grouped(1).to_theirs([q[:2], k, v]).tolist() == [0, 10, 20, 1, 11, 21]


def test_a_parameter_without_a_rule_is_a_fault_of_the_family():
    rules = family.find("llama").rules
    state = build(load(compose(SMALL)).model, device="meta").state_dict()
    with pytest.raises(ValueError, match=r"no rule for \['layers.0.mixer.new'\], two for nothing"):
        rule.matches(rules, state | {"layers.0.mixer.new": torch.empty(1)}, 2, "llama")
    with pytest.raises(ValueError, match=r"no rule for nothing, two for .*final_norm"):
        rule.matches([*rules, rule.Rule("again", "final_norm")], state, 2, "llama")
