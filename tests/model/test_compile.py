"""Compilation changes neither numbers nor names (C37), and a whole pass is one graph."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from tests.choices import slot

LAYERS = {"n_layers": 1}


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_a_whole_pass_is_one_graph(tiny, ids, scheme):
    model, tokens = tiny(position=scheme, **LAYERS), ids(2, 7)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert (compiled(tokens).logits - model(tokens).logits).abs().max() <= 1e-6


@pytest.mark.parametrize("knobs", [{"window": 3, "sinks": True}, {"softcap": 2.0}], ids=str)
def test_a_pass_of_every_attention_is_one_graph(tiny, ids, attention, knobs):
    model, tokens = tiny(position="alibi", attention=slot("attention", attention, **knobs), **LAYERS), ids(2, 7)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert (compiled(tokens).logits - model(tokens).logits).abs().max() <= 1e-5


def test_a_pass_of_every_ffn_is_one_graph(tiny, ids, ffn):
    model, tokens = tiny(ffn=ffn, **LAYERS), ids(2, 7)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert (compiled(tokens).logits - model(tokens).logits).abs().max() <= 1e-6


@pytest.mark.parametrize("what", ["padding", "segments"])
def test_a_masked_pass_is_one_graph(tiny, ids, what):
    model, tokens = tiny(**LAYERS), ids(2, 7)
    real = torch.arange(7).expand(2, 7) >= torch.tensor([[0], [2]])
    arguments = {"attention_mask": real} if what == "padding" else {"segments": real.long()}
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert (compiled(tokens, **arguments).logits - model(tokens, **arguments).logits).abs().max() <= 1e-6


def test_the_keys_are_those_of_the_model(tiny, ids):
    model, plain = tiny(**LAYERS), tiny(seed=1, **LAYERS)
    model.compile(backend="eager")
    model(ids(2, 7))
    assert list(model.state_dict()) == list(plain.state_dict())
    assert not any("_orig_mod" in key for key in model.state_dict())
    assert "_orig_mod.embedding.weight" in torch.compile(plain, backend="eager").state_dict(), "the wrapper would show"
    plain.load_state_dict(model.state_dict())
    assert (plain(ids(2, 7)).logits - model(ids(2, 7)).logits).abs().max() <= 1e-6
    model.load_state_dict(tiny(seed=2, **LAYERS).state_dict())
    assert (model(ids(2, 7)).logits - tiny(seed=2, **LAYERS)(ids(2, 7)).logits).abs().max() <= 1e-6


def test_a_compiled_model_trains_as_the_plain_one(tiny, ids):
    tokens, losses = ids(2, 7), []
    for compiled in (True, False):
        model = tiny(**LAYERS)
        if compiled:
            model.compile(backend="eager")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            loss = cross_entropy(model(tokens).logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert abs(losses[0] - losses[1]) <= 1e-6
