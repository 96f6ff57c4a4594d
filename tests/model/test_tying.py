"""Tied and untied heads after build, cast, load and an optimizer step (C38); the names of a state dict, for ever."""

import copy

import pytest
import torch

KEYS = [
    "embedding.weight",
    "layers.0.mixer.q.weight",
    "layers.0.mixer.k.weight",
    "layers.0.mixer.v.weight",
    "layers.0.mixer.o.weight",
    "layers.0.mixer_norm.weight",
    "layers.0.ffn.gate.weight",
    "layers.0.ffn.up.weight",
    "layers.0.ffn.down.weight",
    "layers.0.ffn_norm.weight",
    "final_norm.weight",
    "head.weight",
]
GPT2_KEYS = [
    "embedding.weight",
    "positions.model.weight",
    *(f"layers.0.mixer.{name}.{kind}" for name in "qkvo" for kind in ("weight", "bias")),
    "layers.0.mixer_norm.weight",
    "layers.0.mixer_norm.bias",
    *(f"layers.0.ffn.{name}.{kind}" for name in ("up", "down") for kind in ("weight", "bias")),
    "layers.0.ffn_norm.weight",
    "layers.0.ffn_norm.bias",
    "final_norm.weight",
    "final_norm.bias",
    "head.weight",
    "head.bias",
]


def one(model):
    head, table = model.head.weight, model.embedding.weight
    return head is table and head.data_ptr() == table.data_ptr()


def step(model, tokens):
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model(tokens).logits.logsumexp(-1).mean().backward()
    before = model.embedding.weight.detach().clone()
    optimizer.step()
    assert not torch.equal(before, model.embedding.weight)


@pytest.mark.parametrize("tied", [True, False])
def test_a_tie_survives_every_trip(tiny, ids, tied):
    model = tiny(tie_embeddings=tied)
    assert one(model) == tied
    for moved in (model.to(torch.bfloat16), model.to(torch.float32), copy.deepcopy(model)):
        assert one(moved) == tied
    model.load_state_dict({key: value.clone() for key, value in tiny(tie_embeddings=tied, seed=1).state_dict().items()})
    assert one(model) == tied
    step(model, ids(2, 5))
    assert one(model) == tied and torch.equal(model.embedding.weight, model.head.weight) == tied


def test_a_tie_that_is_cut_is_seen(tiny):
    model = tiny()
    model.head.weight = torch.nn.Parameter(model.head.weight.detach().clone())
    assert not one(model)


def test_a_tied_table_is_one_parameter(tiny):
    names = [name for name, _ in tiny().named_parameters()]
    assert "embedding.weight" in names and "head.weight" not in names
    assert "head.weight" in [name for name, _ in tiny(tie_embeddings=False).named_parameters()]


def test_an_untied_head_is_loaded_as_it_is(tiny):
    other, model = tiny(tie_embeddings=False, seed=1), tiny(tie_embeddings=False)
    model.load_state_dict(other.state_dict())
    assert torch.equal(model.head.weight, other.head.weight)
    assert not torch.equal(model.head.weight, model.embedding.weight)


@pytest.mark.parametrize("tied", [True, False])
def test_the_keys_of_a_state_dict(tiny, tied):
    assert list(tiny(n_layers=1, tie_embeddings=tied).state_dict()) == KEYS


def test_the_keys_with_biases_and_a_table(tiny):
    model = tiny(
        n_layers=1,
        attention={"name": "gqa", "n_heads": 4, "bias": True},
        ffn={"name": "mlp", "d_ff": 48},
        norm="layernorm",
        position="learned",
        head={"bias": True},
    )
    assert list(model.state_dict()) == GPT2_KEYS


def test_the_keys_of_a_layer_are_its_number(tiny):
    names = {key.split(".")[1] for key in tiny(n_layers=12).state_dict() if key.startswith("layers.")}
    assert names == {str(i) for i in range(12)}


def test_post_norm_has_no_norm_at_the_end(tiny):
    assert "final_norm.weight" not in tiny(block="post_norm").state_dict()
    assert "final_norm.weight" in tiny(block="post_norm", final_norm=True).state_dict()
