"""Compiled decode: the tokens of the plain step, one graph for all lengths, nothing kept of a model that is gone."""

import gc
import shutil
import weakref

import pytest
import torch
from torch import nn

from builder.errors import ArchlabError
from builder.generation import GenerateResult, generate
from builder.generation.compiled import step_of
from builder.model.kv_state import KVState

WINDOW = {"name": "gqa", "n_heads": 4, "n_kv_heads": 2, "d_head": 8, "window": 6}
HYBRID = {"attention": "mla", "ssm": "mamba", "pattern": ["ssm", "attention+ffn"], "n_layers": 2}
# kind: what the model has, and the most graphs that its decode may need, in a ring before and after it turns
KINDS = {
    "gqa": ({}, 1),
    "hybrid": (HYBRID, 1),
    "alibi": ({"position": "alibi"}, 1),
    "window": ({"attention": WINDOW}, 3),
}


class Graphs:
    """A backend that compiles nothing and counts what it was asked to compile."""

    def __init__(self):
        self.count = 0

    def __call__(self, graph, _):
        self.count += 1
        return graph.forward


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def made(tiny):
    """made(**overrides): (a model of one layer, the graphs that its decode is compiled to)."""

    def make(**overrides):
        model, graphs = tiny(**({"tie_embeddings": False, "n_layers": 1} | overrides)), Graphs()
        step_of(model, True, graphs)
        return model, graphs

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_those_of_the_plain_step_and_lengths_share_a_graph(made, ids, kind):
    model, graphs = made(**KINDS[kind][0])
    names = list(model.state_dict())
    for length, count in ((5, 12), (9, 20)):
        found, plain = (generate(model, ids(2, length), max_new_tokens=count, compile=way) for way in (True, False))
        assert isinstance(found, GenerateResult) and torch.equal(found.tokens, plain.tokens)
        assert (found.logprobs - plain.logprobs).abs().max() <= 1e-5
    assert graphs.count <= KINDS[kind][1] and list(model.state_dict()) == names and "forward" not in vars(model)


def test_padded_rows_share_a_graph_too(made, ids):
    model, graphs = made()
    real = torch.arange(7)[None] >= torch.tensor([[3], [0]])
    for length, count in ((7, 10), (7, 20)):
        given = {"attention_mask": real[:, :length], "max_new_tokens": count}
        found, plain = (generate(model, ids(2, length), compile=way, **given) for way in (True, False))
        assert torch.equal(found.tokens, plain.tokens)
    assert graphs.count <= 2


def test_what_fixed_a_length_would_need_a_graph_for_each_and_is_refused(made, ids, monkeypatch):
    append = KVState.append
    monkeypatch.setattr(KVState, "append", lambda self, k, v: ({}.get(self.used), append(self, k, v))[1])
    monkeypatch.setattr("builder.generation.compiled._GRAPHS", 4)
    model, graphs = made()
    with pytest.raises(ArchlabError, match=r"(?s)^compile: .*FailOnRecompileLimitHit.*write compile=false"):
        generate(model, ids(2, 5), max_new_tokens=12, compile=True)
    assert graphs.count == 4 and generate(model, ids(2, 5), max_new_tokens=12).tokens.shape == (2, 12)


def test_beams_are_those_of_the_plain_step(made, ids):
    model, graphs = made()
    found, plain = (generate(model, ids(2, 5), max_new_tokens=8, num_beams=3, compile=way) for way in (True, False))
    assert torch.equal(found.tokens, plain.tokens) and graphs.count == 1


def test_weights_are_those_of_the_call(made, ids):
    model, graphs = made()
    first = generate(model, ids(2, 5), max_new_tokens=8, compile=True).tokens
    with torch.no_grad():
        model.head.weight.copy_(model.head.weight.roll(1, 0))
    found, plain = (generate(model, ids(2, 5), max_new_tokens=8, compile=way).tokens for way in (True, False))
    assert torch.equal(found, plain) and not torch.equal(found, first) and graphs.count == 1


def test_a_model_that_is_gone_is_kept_by_nothing(made, ids):
    model, _ = made()
    generate(model, ids(2, 5), max_new_tokens=3, compile=True)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_what_torch_cannot_trace_is_told(made, ids):
    class Untraceable(nn.Module):
        def forward(self, x):
            return torch.compiler.disable(torch.tanh)(x)

    model, _ = made()
    model.final_norm = Untraceable()
    with pytest.raises(ArchlabError, match=r"(?s)^compile: .*write compile=false"):
        generate(model, ids(2, 5), max_new_tokens=3, compile=True)


def test_a_draft_beside_it_is_refused(made, ids):
    model, _ = made()
    with pytest.raises(ArchlabError, match=r"(?s)compile: .*draft"):
        generate(model, ids(1, 5), max_new_tokens=3, compile=True, draft=model)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles for a CPU with g++")
def test_what_torch_compiles_writes_the_same(tiny, ids):
    model = tiny(tie_embeddings=False, n_layers=1)
    found, plain = (generate(model, ids(2, 5), max_new_tokens=12, compile=way) for way in (True, False))
    assert torch.equal(found.tokens, plain.tokens)
