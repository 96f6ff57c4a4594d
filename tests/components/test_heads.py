"""Heads and poolings against loops in float64: padding on any side counts for nothing, FLOPs are those counted."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from builder import registry
from builder.component import Config, Site

D, B, T, V = 16, 3, 5, 11
MASK = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)
NORMED = {"transform": "relu", "transform_bias": False, "transform_norm": {"name": "layernorm"}}
HEADS = {
    "language_model": [{}, {"bias": True, "scale": 0.5, "softcap": 3.0}, {"transform": "gelu"},
                       {"transform": "tanh", "transform_bias": False, "transform_norm": {"name": "layernorm"}}],
    "classifier": [{"n_classes": 4, "pooling": {"name": name}} for name in registry.names("pooling")]
    + [{"n_classes": 4, "transform": "tanh"}, {"n_classes": 4, "pooling": {"name": "first"}, **NORMED}],
    "token_classifier": [{"n_classes": 4}, {"n_classes": 4, **NORMED}],
    "sentence": [{}, {"width": 6, "normalise": False}, {"pooling": {"name": "first"}, "transform": "tanh"}],
}  # fmt: skip
CASES = [(name, knobs) for name, cases in HEADS.items() for knobs in cases]
SHAPES = {"tokens": (B, T, V), "classes": (B, 4), "token_classes": (B, T, 4), "sentence": (B, D)}


def made(room, name, *more, **knobs):
    found = registry.find(room, name)
    config = found.Config.model_validate({"name": name, **knobs})
    site = Site(D, 0, 1, 2, False, 8, 8, Config(name="rmsnorm"), Config(name="none"))
    component = found(config, site, *more).to(torch.float64)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in component.parameters():
            parameter.normal_(0.0, 0.5, generator=generator)
    return component.eval()


@pytest.fixture
def hidden():
    return torch.randn(B, T, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_every_head_there_is_is_tried():
    assert sorted(HEADS) == registry.names("head")


@pytest.mark.parametrize(("name", "knobs"), CASES, ids=str)
def test_a_head_gives_its_shape_and_states_its_flops(hidden, name, knobs):
    head = made("head", name, V, **knobs)
    wide = (*SHAPES[head.gives][:-1], knobs.get("width", SHAPES[head.gives][-1]))
    assert head(hidden, MASK).shape == wide
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        head(hidden)
    assert head.flops(T) == counter.get_total_flops() // B


@pytest.mark.parametrize(("name", "knobs"), [case for case in CASES if case[0] in ("classifier", "sentence")], ids=str)
def test_padding_counts_for_nothing(hidden, name, knobs):
    head, out = made("head", name, V, **knobs), made("head", name, V, **knobs)(hidden, MASK)
    for row in range(B):
        alone = head(hidden[row : row + 1, MASK[row]])
        assert (out[row] - alone[0]).abs().max() < 1e-12
    assert (head(hidden)[:2] - out[:2]).abs().max() > 1e-2  # the pads are felt where nothing hides them
    other = torch.where(MASK[..., None], hidden, hidden + 100)
    assert (head(other, MASK) - out).abs().max() < 1e-12


LOOPS = {
    "mean": lambda module, h: h.sum(0) / len(h),
    "first": lambda module, h: h[0],
    "last": lambda module, h: h[-1],
    "attention": lambda module, h: _attended(module, h),
}


def _attended(module, h):
    scores = torch.stack([module.query.weight[0] @ torch.tanh(module.key.weight @ x + module.key.bias) for x in h])
    weights = scores.exp() / scores.exp().sum()
    return sum(weight * x for weight, x in zip(weights, h, strict=True))


@pytest.mark.parametrize("name", registry.names("pooling"))
def test_a_pooling_is_its_formula(hidden, name):
    pooling = made("pooling", name)
    out = pooling(hidden, MASK)
    for row in range(B):
        assert (out[row] - LOOPS[name](pooling, hidden[row, MASK[row]])).abs().max() < 1e-12
    assert torch.equal(pooling(hidden, torch.zeros_like(MASK)), torch.zeros(B, D, dtype=torch.float64))


def test_the_loss_in_pieces_is_that_of_all_logits(hidden):
    for knobs in HEADS["language_model"]:
        head = made("head", "language_model", V, **knobs)
        targets = torch.arange(B * T) % V
        whole = torch.nn.functional.cross_entropy(head(hidden).flatten(0, 1), targets, reduction="sum")

        def piece(z, rows, targets=targets):
            return torch.nn.functional.cross_entropy(z, targets[rows], reduction="sum")

        summed = head.summed(hidden, piece)
        assert (whole - summed).abs() < 1e-4  # summed in float32


@pytest.mark.parametrize("name", ["classifier", "token_classifier"])
def test_a_layer_stands_before_the_last_map(hidden, name):
    """norm(f(A x)) and then the classes, at a position that is its own row; the negative control, without the layer."""
    head = made("head", name, V, n_classes=4, **NORMED)
    row = torch.relu(hidden[0, 0] @ head.transform.weight.T)
    normed = (row - row.mean()) / (row.var(unbiased=False) + 1e-5).sqrt() * head.norm.weight + head.norm.bias
    wanted = head.classes.weight @ normed + head.classes.bias
    found = head(hidden[:1, :1]).flatten()
    assert (found - wanted).abs().max() < 1e-12
    assert (found - head.classes(hidden[0, 0])).abs().max() > 1e-2
