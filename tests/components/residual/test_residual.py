"""Residuals against their papers' formulas in float64: values, first values, decay, FLOPs, and the checklist."""

import math

import pytest
import torch
from torch import nn
from transformers.models.dinov2.modeling_dinov2 import Dinov2LayerScale

from builder import registry
from builder.components.init import roles
from builder.model.assemble import build
from builder.spec import ModelSpec
from builder.training.optimizer import decay_groups
from tests.choices import slot
from tests.model.conftest import TINY

D = 32
CASES = {
    "constant": {"branch": 0.22, "stream": 1.5},
    "depth": {"power": 0.5},
    "layer_scale": {"initial": 0.1},
    "gated": {"bias": 2.0},
}
# name -> the sum by hand, for a site of 24 writes
BY_HAND = {
    "constant": lambda r, x, y: 1.5 * x + 0.22 * y,
    "depth": lambda r, x, y: x + y / math.sqrt(24),
    "layer_scale": lambda r, x, y: x + r.weight * y,
    "gated": lambda r, x, y: x + y / (1 + torch.exp(-(x @ r.gate.weight.T + r.gate.bias - 2.0))),
}


@pytest.fixture
def residual(config, site):
    def make(name, **knobs):
        chosen = config("residual", name, **knobs)
        return chosen.component(chosen, site(writes=24, n_layers=12))

    return make


@pytest.fixture
def stack():
    """stack(block, residual, **changes): a tiny model whose block has that residual, drawn by its init."""

    def make(block, residual, **changes):
        chosen = {"block": {"name": block, "residual": residual}}
        return build(ModelSpec.model_validate(TINY | chosen | changes), seed=0).double().eval()

    return make


def test_every_residual_is_written_out_here():
    assert set(CASES) == set(BY_HAND) == set(registry.names("residual"))


@pytest.mark.parametrize("name", CASES)
def test_equals_the_formula(residual, wide, name):
    r, (x, y) = wide(residual(name, **CASES[name])), torch.randn(2, 3, 5, D, dtype=torch.float64)
    assert torch.allclose(r(x, y), BY_HAND[name](r, x, y), atol=1e-12)
    assert (r(x, y) - (x + y)).abs().max() > 1e-2, "plain addition"
    assert (r(x, y) - r(y, x)).abs().max() > 1e-2, "stream and branch interchanged"


@pytest.mark.parametrize(("power", "writes"), [(0.5, 4), (1.0, 4), (0.25, 160)])
def test_depth_counts_the_writes_of_the_stack(config, site, power, writes):
    chosen = config("residual", "depth", power=power)
    r, y = chosen.component(chosen, site(writes=writes)), torch.ones(1, 1, D, dtype=torch.float64)
    assert torch.allclose(r(0 * y, y), y * math.exp(-power * math.log(writes)), atol=1e-12)


@pytest.mark.parametrize(("pattern", "layers", "writes"), [
    (["attention+ffn"], 12, 24), (["attention"], 12, 12), (["attention+ffn", "attention"], 3, 5)
])  # fmt: skip
def test_a_model_tells_how_many_writes_there_are(stack, pattern, layers, writes):
    for block in ("pre_norm", "parallel"):
        model = stack(block, {"name": "depth"}, pattern=pattern, n_layers=layers)
        (factor,) = {m.factor for m in model.modules() if hasattr(m, "factor")}
        assert math.isclose(factor, writes**-0.5) and model.spec.site(0).writes == writes


def test_layer_scale_equals_transformers(residual, wide):
    class Its:
        layerscale_value, hidden_size = 0.1, D

    ours, theirs = wide(residual("layer_scale")), Dinov2LayerScale(Its()).double()
    theirs.load_state_dict({"lambda1": ours.weight.detach()})
    x, y = torch.randn(2, 3, D, dtype=torch.float64)
    assert torch.allclose(ours(x, y), x + theirs(y), atol=1e-12)


@pytest.mark.parametrize("init", registry.names("init"))
def test_first_values_and_decay(stack, init):
    model = stack("pre_norm", {"name": "layer_scale", "initial": 0.01}, init=slot("init", init))
    scales = [layer.get_submodule(f"{part}_residual").weight for layer in model.layers for part in ("mixer", "ffn")]
    assert len(scales) == 4 and all((scale.float() == torch.tensor(0.01)).all() for scale in scales)
    still = {
        id(p) for group in decay_groups(model, 0.1, lr=1.0) if group["weight_decay"] == 0.0 for p in group["params"]
    }
    assert {id(scale) for scale in scales} <= still
    gated = stack("pre_norm", {"name": "gated"}, init=slot("init", init))
    gate = gated.layers[1].ffn_residual.gate
    assert gate.weight.std() > 0 and (gate.bias == 0).all()
    assert {role for *_, role in roles(gate)} == {"matrix", "bias"}


def test_a_gate_is_nearly_shut_at_first(residual):
    r = residual("gated").double()
    nn.init.zeros_(r.gate.weight), nn.init.zeros_(r.gate.bias)
    x, y = torch.randn(2, 3, D, dtype=torch.float64)
    assert torch.allclose(r(x, y) - x, 0.11920292202211755 * y, atol=1e-12)  # sigmoid(-2)


@pytest.mark.parametrize(("block", "children"), [
    ("pre_norm", {"mixer_residual", "ffn_residual"}),
    ("post_norm", {"mixer_residual", "ffn_residual"}),
    ("sandwich", {"mixer_residual", "ffn_residual"}),
    ("sublayer_norm", {"mixer_residual", "ffn_residual"}),
    ("parallel", {"residual"}),
])  # fmt: skip
def test_a_layer_has_one_for_each_write_and_its_flops_count(stack, block, children):
    gated, plain = stack(block, {"name": "gated"}), stack(block, None)
    assert {name for name, _ in gated.layers[0].named_children() if name.endswith("residual")} == children
    assert f"layers.0.{min(children)}.gate.weight" in gated.state_dict()
    assert gated.flops(7) - plain.flops(7) == 2 * len(children) * 2 * 7 * D * D  # of two layers
    assert not [name for name in plain.state_dict() if "residual" in name]


def test_every_block_is_tried():
    assert set(registry.names("block")) == {"pre_norm", "post_norm", "sandwich", "sublayer_norm", "parallel"}


@pytest.mark.parametrize("block", registry.names("block"))
def test_constants_of_one_are_plain_addition(stack, block):
    tokens = torch.arange(6)[None]
    plain = stack(block, None)(tokens).logits
    assert torch.allclose(stack(block, {"name": "constant"})(tokens).logits, plain, atol=1e-12)
    assert not torch.allclose(stack(block, {"name": "constant", "branch": 0.5})(tokens).logits, plain, atol=1e-4)


def test_deepnorm_is_written_with_them(stack):
    """x <- LN(alpha x + f(x)) with alpha = (2 L)^(1/4) (Wang et al. 2022)."""
    alpha = 4**0.25
    block = stack("post_norm", {"name": "constant", "stream": alpha}, position={"name": "none"}).layers[0]
    seen = {}
    block.mixer.register_forward_hook(lambda module, inputs, out: seen.update(mixer=out))
    block.ffn.register_forward_hook(lambda module, inputs, out: seen.update(ffn=out))
    model = stack("post_norm", {"name": "constant", "stream": alpha}, position={"name": "none"})
    model.layers[0] = block
    outs = []
    block.register_forward_hook(lambda module, inputs, out: outs.append((inputs[0], out)))
    model(torch.arange(5)[None])
    (x, out), norm = outs[0], lambda z: z / (z.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    assert torch.allclose(out, norm(alpha * norm(alpha * x + seen["mixer"]) + seen["ffn"]), atol=1e-12)


@pytest.mark.parametrize(("name", "knobs", "status", "path"), [
    ("constant", {"branch": 0.0}, "FAIL", "branch"),
    ("constant", {"branch": 0.5}, "PASS", "branch"),
    ("constant", {"stream": 0.0}, "WARN", "stream"),
    ("depth", {}, "PASS", "power"),
    ("layer_scale", {}, "PASS", "initial"),
    ("gated", {}, "PASS", "bias"),
])  # fmt: skip
def test_what_the_checklist_says(config, site, name, knobs, status, path):
    chosen = config("residual", name, **knobs)
    (finding,) = chosen.component.check(chosen, site())
    assert (finding.status, finding.section, finding.path) == (status, 4, path)
    assert bool(finding.fix) == (status != "PASS")


@pytest.mark.parametrize("name", CASES)
def test_a_small_copy_keeps_its_options(config, site, name):
    chosen = config("block", "pre_norm", residual={"name": name} | CASES[name], norm={"name": "layernorm", "eps": 0.1})
    assert chosen.shrink(site()) == chosen
