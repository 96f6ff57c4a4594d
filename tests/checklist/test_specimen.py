"""The specimen that probes run on: the same options in small, drawn wide; and the tying probe on broken models."""

import pytest
import torch
from torch import nn

from builder.checklist.probes import LENGTH, shrink, specimen, tying
from builder.finding import Status
from builder.model.language_model import LanguageModel

LARGE = {
    "model.d_model": 8192,
    "model.n_layers": 80,
    "model.train_length": 8192,
    "model.deploy_length": 8192,
    "model.attention": {"name": "gqa", "n_heads": 64, "n_kv_heads": 8, "bias": True},
    "model.ffn": {"name": "mlp", "d_ff": 28672, "activation": "relu"},
}


class UntiesInACast(LanguageModel):
    """Copies its head whenever it is moved."""

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self.head.weight = nn.Parameter(self.head.weight.detach().clone())
        return self


def test_it_is_small_and_keeps_every_option(run):
    spec = run(LARGE).model
    small = shrink(spec)
    assert small.d_model <= 64 and small.n_layers <= 4 and small.vocab_size <= 64 and small.train_length <= 32
    attention, ffn = small.slots["attention"], small.slots["ffn"]
    assert attention.bias and 1 < attention.kv_heads < attention.n_heads, "still grouped"
    assert ffn.activation == "relu" and ffn.bias and ffn.d_ff < 64
    for key in ("norm", "block", "init", "tie_embeddings", "pattern", "position"):
        assert getattr(small, key) == getattr(spec, key)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "kind"), [(8, 8, "mha"), (8, 1, "mqa"), (8, 2, "gqa"), (8, 4, "gqa"), (1, 1, "mqa")]
)
def test_a_kind_of_attention_stays_that_kind(run, heads, kv_heads, kind):
    small = shrink(run({"model.attention": {"name": "gqa", "n_heads": heads, "n_kv_heads": kv_heads}}).model)
    config = small.slots["attention"]
    expected = {"mha": config.kv_heads == config.n_heads, "mqa": config.kv_heads == 1}
    assert expected.get(kind, 1 < config.kv_heads < config.n_heads)


def test_every_layer_of_a_pattern_is_there(run):
    changes = {"model.local": {"name": "gqa", "n_heads": 2}, "model.n_layers": 12}
    pattern = ["attention+ffn", "local", "local+ffn"]
    small = shrink(run(changes | {"model.pattern": pattern}).model)
    assert [str(layer) for layer in small.layers] == pattern


def test_it_is_drawn_wide_and_the_same_each_time(run):
    spec = run({"model.head": {"bias": True}}).model
    state = torch.get_rng_state()
    one, two = specimen(spec), specimen(spec)
    assert torch.equal(state, torch.get_rng_state())
    assert one.tokens.shape == (1, LENGTH) and torch.equal(one.tokens, two.tokens)
    for (name, parameter), other in zip(one.model.named_parameters(), two.model.parameters(), strict=True):
        assert torch.equal(parameter, other) and parameter.dtype == torch.float64
        assert 0.1 < parameter.std() < 0.3 and (parameter != 0).all(), name


def judged(model):
    (finding,) = tying.prove(model)
    return finding.status


@pytest.mark.parametrize("tied", [True, False])
def test_a_tie_as_declared_passes(run, tied):
    assert judged(specimen(run({"model.tie_embeddings": tied}).model)) is Status.PASS


def test_an_untied_head_is_seen(run):
    copy = specimen(run().model)
    copy.model.head.weight = nn.Parameter(copy.model.head.weight.detach().clone())
    assert judged(copy) is Status.FAIL


def test_a_head_that_is_tied_against_the_declaration_is_seen(run):
    copy = specimen(run({"model.tie_embeddings": False}).model)
    copy.model.head.weight = copy.model.embedding.weight
    assert judged(copy) is Status.FAIL


def test_a_cast_that_unties_is_seen(run):
    copy = specimen(run().model)
    copy.model.__class__ = UntiesInACast
    assert judged(copy) is Status.FAIL


def test_the_tying_probe_leaves_the_specimen_as_it_was(run):
    copy = specimen(run().model)
    before = {name: value.clone() for name, value in copy.model.state_dict().items()}
    judged(copy)
    assert all(torch.equal(before[name], value) for name, value in copy.model.state_dict().items())
