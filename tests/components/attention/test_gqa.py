"""Grouped-query attention: heads share KV heads in blocks (C08), parameters by formula, and what a build refuses."""

from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

from builder import registry
from builder.components.kernel import Case
from builder.finding import Status
from builder.model.kv_state import KVState
from tests.choices import mixers

D, H, K, E = 32, 4, 2, 8
NORM = {"name": "rmsnorm"}


@pytest.fixture(params=registry.names("kernel"))
def kernel(request):
    return request.param


@pytest.fixture
def gqa(config, site, wide):
    def make(**knobs):
        attention = config("attention", "gqa", **{"n_heads": H, "n_kv_heads": None, "d_head": E} | knobs)
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
@torch.no_grad()
def test_query_heads_share_kv_heads_in_blocks(gqa, context, kernel, length):
    grouped, x = gqa(n_kv_heads=K, bias=True, kernel=kernel), torch.randn(2, length, D, dtype=torch.float64)
    blocks = twin(grouped, gqa(bias=True, kernel=kernel), [0, 0, 1, 1])
    tiled = twin(grouped, gqa(bias=True, kernel=kernel), [0, 1, 0, 1])
    assert torch.allclose(grouped(x, context(length)), blocks(x, context(length)), atol=1e-6)
    assert (grouped(x, context(length)) - tiled(x, context(length))).abs().max() > 1e-2


@torch.no_grad()
def test_the_values_of_kv_head_0_feed_exactly_heads_0_and_1(gqa, context, kernel):
    grouped, seen = gqa(n_kv_heads=K, kernel=kernel), []
    grouped.v.weight[:E] = 0
    grouped.o.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    grouped(torch.randn(2, 7, D, dtype=torch.float64), context(7))
    heads = seen[0].unflatten(-1, (H, E))
    assert (heads[:, :, :2] == 0).all() and (heads[:, :, 2:] != 0).all()


@pytest.mark.parametrize(("n_kv_heads", "kept"), [(1, 1), (2, 2), (4, 4), (None, 4)])
def test_the_state_holds_kv_heads_not_query_heads(gqa, n_kv_heads, kept):
    state = gqa(n_kv_heads=n_kv_heads).new_state(3, 5, device=torch.device("cpu"), dtype=torch.float32)
    assert isinstance(state, KVState)
    assert state.keys.shape == state.values.shape == (3, kept, 5, E)


@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("bias", [False, True, ["q"], ["q", "k", "v"], ["o"], []], ids=str)
@pytest.mark.parametrize(
    ("knobs", "more"),
    [
        ({}, lambda kv: 0),
        ({"d_head": 4}, lambda kv: 0),
        ({"qk_norm": NORM}, lambda kv: 2 * E),
        ({"qk_norm": NORM, "qk_norm_over": "projection", "qk_norm_at": "after"}, lambda kv: H * E + kv * E),
        ({"sinks": True, "window": 3, "softcap": 30.0, "scale": 0.1}, lambda kv: H),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_parameters_follow_the_formula_of_chapter_3_4(config, site, n_kv_heads, bias, knobs, more):
    attention = config(
        "attention", "gqa", **{"n_heads": H, "n_kv_heads": n_kv_heads, "d_head": E, "bias": bias} | knobs
    )
    built, width = attention.component(attention, site()), attention.d_head
    named = "qkvo" if bias is True else bias or []
    rows = {"q": H * width, "k": n_kv_heads * width, "v": n_kv_heads * width, "o": D}
    formula = 2 * D * H * width + 2 * D * n_kv_heads * width
    assert sum(p.numel() for p in built.parameters()) == formula + sum(rows[part] for part in named) + more(n_kv_heads)
    assert {name for name, _ in built.named_parameters() if name.endswith("bias")} == {f"{part}.bias" for part in named}


def test_a_gate_is_taken_of_what_each_head_reads(gqa, context):
    """Number by number, before the output projection (Qiu et al. 2025, equation 5)."""
    gated, open_, x = gqa(gate=True, bias=True), gqa(bias=True), torch.randn(2, 7, D, dtype=torch.float64)
    open_.load_state_dict({name: value for name, value in gated.state_dict().items() if "gate" not in name})
    read = open_.read(x, context(7)).flatten(-2)
    right = gated.o(read * (1 + (-x @ gated.gate.weight.T - gated.gate.bias).exp()).reciprocal())
    assert torch.allclose(gated(x, context(7)), right, atol=1e-12)
    assert (gated(x, context(7)) - open_(x, context(7))).abs().max() > 1e-3
    assert gqa(gate=True, bias=["k"]).gate.bias is None
    assert gqa(gate=True).divide(2) == dict.fromkeys(("q", "k", "v", "gate"), "columns") | {"o": "rows"}


def test_heads_that_do_not_share_evenly_are_refused_with_both_numbers(config):
    with pytest.raises(ValidationError) as error:
        config("attention", "gqa", n_heads=4, n_kv_heads=3)
    (line,) = error.value.errors()
    assert line["loc"] == ("n_kv_heads",) and line["input"] == 3 and "n_heads=4" in line["msg"]
    assert config("attention", "gqa", n_heads=4, n_kv_heads=2).kv_heads == 2


def test_an_unknown_kernel_is_refused_with_the_names(config):
    with pytest.raises(ValidationError, match="sdpa"):
        config("attention", "gqa", n_heads=4, kernel="spda")


@pytest.mark.parametrize("bias", [["x"], ["q", "qk"], "q", 1, [["q"]]], ids=str)
def test_a_bias_of_no_projection_is_refused(config, bias):
    with pytest.raises(ValidationError, match="list of q, k, v and o") as error:
        config("attention", "gqa", n_heads=4, bias=bias)
    assert error.value.errors()[0]["loc"] == ("bias",)


@pytest.mark.parametrize("knob", [{"qk_norm_at": "after"}, {"qk_norm_over": "projection"}], ids=str)
def test_the_place_of_a_norm_that_is_not_there_is_refused(config, knob):
    with pytest.raises(ValidationError, match="while qk_norm is null") as error:
        config("attention", "gqa", n_heads=4, **knob)
    assert error.value.errors()[0]["loc"] == tuple(knob)
    config("attention", "gqa", n_heads=4, qk_norm=NORM, **knob)


@pytest.mark.parametrize("knob", [{"window": 0}, {"scale": 0.0}, {"softcap": -1.0}, {"dropout": 1.0}, {"sinks": 1}])
def test_a_number_out_of_its_range_is_refused(config, knob):
    with pytest.raises(ValidationError) as error:
        config("attention", "gqa", n_heads=4, **knob)
    assert error.value.errors()[0]["loc"] == tuple(knob)


def test_dropout_acts_in_training_only(gqa, context, kernel):
    if registry.find("kernel", kernel).refuses(Case("cpu", dropout=True, grad=True)):
        return
    dropping, x = gqa(dropout=0.5, kernel=kernel), torch.randn(1, 7, D, dtype=torch.float64)
    assert torch.equal(dropping.eval()(x, context(7)), dropping(x, context(7)))
    assert not torch.equal(dropping.train()(x, context(7)), dropping(x, context(7)))


def kernel_findings(made, site):
    return [finding for finding in made.component.check(made, site) if finding.path == "kernel"]


@pytest.mark.parametrize("name", mixers("attention"))
@pytest.mark.parametrize(
    ("kernel", "knob", "words"),
    [("sdpa", {"softcap": 30.0}, "no soft-cap"), ("flex", {"dropout": 0.1}, "no dropout")],
)
def test_a_pinned_kernel_that_cannot_compute_it_fails_the_checklist(config, site, name, kernel, knob, words):
    wide = {"d_head": 16, **knob}  # FlexAttention on a GPU takes no narrower heads
    (bad,) = kernel_findings(config("attention", name, kernel=kernel, **wide), site())
    assert bad.status is Status.FAIL and kernel in bad.rule and words in bad.rule and "kernel=null" in bad.fix
    for fine in ({"kernel": kernel, "d_head": 16}, wide):
        (good,) = kernel_findings(config("attention", name, **fine), site())
        assert good.status is Status.PASS


def test_the_checklist_names_the_kernels_of_training(config, site):
    def told(d_head=16, **knobs):
        return kernel_findings(config("attention", "gqa", d_head=d_head, **knobs), site())[0].found

    assert told() == "SDPA on a CPU, SDPA on a GPU"
    assert told(window=4) == told(sinks=True) == "SDPA on a CPU, Flex on a GPU"
    assert told(softcap=4.0) == "Eager on a CPU, Flex on a GPU"
    assert told(window=16) == told(), "no sequence is longer"
    assert told(window=4, d_head=8) == told(), "FlexAttention on a GPU takes no heads that narrow"
    assert told(kernel="flex") == "none on a CPU, Flex on a GPU"


def test_a_window_that_no_sequence_fills_is_a_warning(config, site):
    def status(window, **facts):
        made = config("attention", "gqa", window=window)
        return next(f.status for f in made.component.check(made, site(**facts)) if f.path == "window")

    assert status(16) is Status.WARN and status(15) is Status.PASS
    assert status(16, deploy_length=17) is Status.PASS


def test_a_shrunken_copy_has_every_option(config, site):
    options = {
        "n_heads": 8, "n_kv_heads": 2, "d_head": 64, "bias": ["q"], "window": 512, "qk_norm": NORM, "softcap": 5.0,
        "qk_norm_over": "projection", "qk_norm_at": "after", "scale": 0.2, "sinks": True, "dropout": 0.1,
    }  # fmt: skip
    made = config("attention", "gqa", **options)
    small = made.shrink(replace(site(), d_model=512))
    kept = ("bias", "softcap", "qk_norm_over", "qk_norm_at", "scale", "sinks", "dropout", "qk_norm")
    assert all(getattr(small, key) == getattr(made, key) for key in kept)
    assert small.window == 4 and small.n_heads == 4 and small.kv_heads == 2
