"""Grouped-query attention: heads share KV heads in blocks (C08), and what a build refuses."""

import pytest
import torch
from pydantic import ValidationError

from builder import registry
from builder.model.state import KVState

D, H, K, E = 32, 4, 2, 8


@pytest.fixture(params=registry.names("kernel"))
def gqa(config, site, wide, request):
    def make(**knobs):
        usual = {"n_heads": H, "n_kv_heads": None, "d_head": E, "kernel": request.param}
        attention = config("attention", "gqa", **usual | knobs)
        return wide(attention.component(attention, site()))

    return make


def twin(grouped, full, order):
    """Copies a grouped attention into a multi-head one whose KV heads are the grouped ones in `order`."""
    with torch.no_grad():
        for name in ("q", "o"):
            full.get_submodule(name).load_state_dict(grouped.get_submodule(name).state_dict())
        for name in ("k", "v"):
            source = grouped.get_submodule(name)
            target = full.get_submodule(name)
            target.weight.copy_(source.weight.view(K, E, D)[order].reshape(H * E, D))
            target.bias.copy_(source.bias.view(K, E)[order].reshape(H * E))
    return full


@pytest.mark.parametrize("length", [1, 7])
def test_query_heads_share_kv_heads_in_blocks(gqa, context, length):
    grouped, x = gqa(n_kv_heads=K, bias=True), torch.randn(2, length, D, dtype=torch.float64)
    blocks = twin(grouped, gqa(bias=True), [0, 0, 1, 1])
    tiled = twin(grouped, gqa(bias=True), [0, 1, 0, 1])
    assert torch.allclose(grouped(x, context(length)), blocks(x, context(length)), atol=1e-6)
    assert (grouped(x, context(length)) - tiled(x, context(length))).abs().max() > 1e-2


def test_the_values_of_kv_head_0_feed_exactly_heads_0_and_1(gqa, context):
    grouped, seen = gqa(n_kv_heads=K), []
    with torch.no_grad():
        grouped.v.weight[:E] = 0
    grouped.o.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    grouped(torch.randn(2, 7, D, dtype=torch.float64), context(7))
    heads = seen[0].unflatten(-1, (H, E))
    assert (heads[:, :, :2] == 0).all() and (heads[:, :, 2:] != 0).all()


@pytest.mark.parametrize(("n_kv_heads", "kept"), [(1, 1), (2, 2), (4, 4), (None, 4)])
def test_the_state_holds_kv_heads_not_query_heads(gqa, n_kv_heads, kept):
    state = gqa(n_kv_heads=n_kv_heads).new_state(3, 5, device=torch.device("cpu"), dtype=torch.float32)
    assert isinstance(state, KVState)
    assert state.keys.shape == state.values.shape == (3, 5, kept, E)


@pytest.mark.parametrize(("n_kv_heads", "d_head", "bias"), [(1, 8, False), (2, 4, False), (4, 8, False), (2, 8, True)])
def test_parameters_follow_the_formula_of_chapter_3_4(config, site, n_kv_heads, d_head, bias):
    attention = config("attention", "gqa", n_heads=H, n_kv_heads=n_kv_heads, d_head=d_head, bias=bias)
    built = attention.component(attention, site())
    biases = (H * d_head + 2 * n_kv_heads * d_head + D) * bias
    expected = 2 * D * H * d_head + 2 * D * n_kv_heads * d_head + biases
    assert sum(parameter.numel() for parameter in built.parameters()) == expected


def test_heads_that_do_not_share_evenly_are_refused_with_both_numbers(config):
    with pytest.raises(ValidationError) as error:
        config("attention", "gqa", n_heads=4, n_kv_heads=3)
    (line,) = error.value.errors()
    assert line["loc"] == ("n_kv_heads",) and line["input"] == 3 and "n_heads=4" in line["msg"]
    assert config("attention", "gqa", n_heads=4, n_kv_heads=2).kv_heads == 2


def test_an_unknown_kernel_is_refused_with_the_names(config):
    with pytest.raises(ValidationError, match="sdpa"):
        config("attention", "gqa", n_heads=4, kernel="spda")


def test_dropout_acts_in_training_only(gqa, context):
    dropping, x = gqa(dropout=0.5), torch.randn(1, 7, D, dtype=torch.float64)
    assert torch.equal(dropping.eval()(x, context(7)), dropping(x, context(7)))
    assert not torch.equal(dropping.train()(x, context(7)), dropping(x, context(7)))
