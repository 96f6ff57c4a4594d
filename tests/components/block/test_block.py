"""Blocks against the residual order of chapter 3.5, written out; parts are stand-ins that remember their input."""

import pytest
import torch
from torch import nn

from builder import registry

D = 32


class Stand(nn.Module):
    """A part: an affine map, costing `cost` FLOPs a token."""

    def __init__(self, cost):
        super().__init__()
        self.map, self.cost = nn.Linear(D, D), cost

    def ahead(self, x, ctx):
        return x

    def forward(self, x, ctx):
        return self.map(x)

    def flops(self, tokens):
        return self.cost * tokens


@pytest.fixture
def block(config, site, wide):
    def make(name, parts=("mixer", "ffn"), **knobs):
        chosen = config("block", name, **knobs)
        return wide(chosen.component(chosen, site(), {part: Stand(i + 1) for i, part in enumerate(parts)}))

    return make


def pre(b, x):
    u = x + b.mixer.map(b.mixer_norm(x))
    return u + b.ffn.map(b.ffn_norm(u))


def pre_but_first(b, x):
    u = x + b.mixer.map(x)
    return u + b.ffn.map(b.ffn_norm(u))


def post(b, x):
    u = b.mixer_norm(x + b.mixer.map(x))
    return b.ffn_norm(u + b.ffn.map(u))


def sandwich(b, x):
    u = x + b.mixer_out_norm(b.mixer.map(b.mixer_norm(x)))
    return u + b.ffn_out_norm(b.ffn.map(b.ffn_norm(u)))


def sublayer(b, x):
    u = x + b.mixer_norm(b.mixer.map(x))
    return u + b.ffn_norm(b.ffn.map(u))


def parallel(b, x):
    return x + b.mixer.map(b.norm(x)) + b.ffn.map(b.norm(x))


def parallel_with_two(b, x):
    return x + b.mixer.map(b.mixer_norm(x)) + b.ffn.map(b.ffn_norm(x))


ORDERS = {
    "pre_norm": ({}, pre),
    "pre_norm, none at first": ({"first_norm": False}, pre_but_first),
    "post_norm": ({}, post),
    "sandwich": ({}, sandwich),
    "sublayer_norm": ({}, sublayer),
    "parallel": ({}, parallel),
    "parallel, two norms": ({"norms": 2}, parallel_with_two),
}
TAKEN = {  # the orders that a block's names also fit, each wrong for it
    "pre_norm": (post, sublayer, parallel_with_two),
    "pre_norm, none at first": (post, sublayer, parallel_with_two),
    "post_norm": (pre, sublayer),
    "sandwich": (pre,),
    "sublayer_norm": (pre, post, parallel_with_two),
    "parallel, two norms": (pre, sublayer),
}
NAMES = {  # the norms of a layer: of both parts, and of a mixer alone
    "pre_norm": ({"mixer_norm", "ffn_norm"}, {"mixer_norm"}),
    "pre_norm, none at first": ({"ffn_norm"}, set()),
    "post_norm": ({"mixer_norm", "ffn_norm"}, {"mixer_norm"}),
    "sandwich": ({"mixer_norm", "mixer_out_norm", "ffn_norm", "ffn_out_norm"}, {"mixer_norm", "mixer_out_norm"}),
    "sublayer_norm": ({"mixer_norm", "ffn_norm"}, {"mixer_norm"}),
    "parallel": ({"norm"}, {"norm"}),
    "parallel, two norms": ({"mixer_norm", "ffn_norm"}, {"mixer_norm"}),
}


@pytest.fixture(params=ORDERS)
def order(request):
    """(its title, the name of the block, its knobs, the order by hand)."""
    knobs, by_hand = ORDERS[request.param]
    return request.param, request.param.partition(",")[0], knobs, by_hand


def test_every_block_is_written_out_here():
    assert {title.partition(",")[0] for title in ORDERS} == set(registry.names("block"))


def test_equals_the_order_by_hand(block, context, order):
    title, name, knobs, by_hand = order
    b, x = block(name, **knobs), torch.randn(2, 5, D, dtype=torch.float64)
    assert torch.allclose(b(x, context(5)), by_hand(b, x), atol=1e-12)
    for other in TAKEN.get(title, ()):
        assert (b(x, context(5)) - other(b, x)).abs().max() > 1e-2


def test_one_norm_for_both_parts_is_not_one_for_each(block, context):
    x = torch.randn(2, 5, D, dtype=torch.float64)
    one, two = block("parallel"), block("parallel", norms=2)
    two.load_state_dict({**two.state_dict(), **{k: v for k, v in one.state_dict().items() if k in two.state_dict()}})
    assert (one(x, context(5)) - two(x, context(5))).abs().max() > 1e-2


def test_the_names_of_the_norms(block, order):
    title, name, knobs, _ = order
    for parts, norms in zip((("mixer", "ffn"), ("mixer",)), NAMES[title], strict=True):
        b = block(name, parts=parts, **knobs)
        assert {key.split(".")[0] for key in b.state_dict()} == {*parts, *norms}


def test_only_the_first_layer_goes_without_its_norm(config, site):
    chosen = config("block", "pre_norm", first_norm=False)
    norms = [
        isinstance(chosen.component(chosen, site(layer=n), {"mixer": Stand(1)}).mixer_norm, nn.Identity) for n in (0, 1)
    ]
    assert norms == [True, False]
    drawn = [chosen.component.draw(chosen, site(layer=n), ("attention", "ffn")) for n in (0, 1)]
    assert drawn == ["x = x + attention(x); x = x + ffn(norm(x))", "x = x + attention(norm(x)); x = x + ffn(norm(x))"]


def test_a_parallel_layer_of_a_mixer_alone_is_a_pre_norm_layer(block, context):
    x = torch.randn(2, 5, D, dtype=torch.float64)
    one, other = block("parallel", parts=("mixer",)), block("pre_norm", parts=("mixer",))
    other.load_state_dict({key.replace("norm.", "mixer_norm."): value for key, value in one.state_dict().items()})
    assert torch.equal(one(x, context(5)), other(x, context(5)))


def test_drawings_say_the_order_and_the_weights(config, site):
    def drawn(name, parts=("attention", "ffn"), **knobs):
        chosen = config("block", name, **knobs)
        return chosen.component.draw(chosen, site(), list(parts))

    assert drawn("pre_norm") == "x = x + attention(norm(x)); x = x + ffn(norm(x))"
    assert drawn("post_norm", ["local"]) == "x = norm(x + local(x))"
    assert drawn("sandwich", ["local"]) == "x = x + norm(local(norm(x)))"
    assert drawn("sublayer_norm", ["local"]) == "x = x + norm(local(x))"
    assert drawn("parallel") == "x = x + attention(norm(x)) + ffn(norm(x))"
    assert drawn("parallel", norms=2) == "x = x + attention(norm(x)) + ffn(norm'(x))"
    assert drawn("parallel", ["ssm"]) == "x = x + ssm(norm(x))"
    weighed = {"name": "constant", "branch": 0.22}
    assert drawn("pre_norm", ["ffn"], residual=weighed) == "x = x + 0.22 ffn(norm(x))"
    assert drawn("post_norm", ["ffn"], residual=weighed | {"stream": 2.0}) == "x = norm(2 x + 0.22 ffn(x))"
    assert drawn("parallel", residual=weighed) == "x = x + 0.22 (attention(norm(x)) + ffn(norm(x)))"


@pytest.mark.parametrize("name", registry.names("block"))
def test_a_layer_may_be_a_mixer_alone(block, context, name):
    b = block(name, parts=("mixer",))
    assert b(torch.randn(2, 5, D, dtype=torch.float64), context(5)).shape == (2, 5, D)
    assert "mixer" in b.parts and "ffn" not in b.parts


@pytest.mark.parametrize("name", registry.names("block"))
def test_flops_are_those_of_the_parts(block, name):
    assert block(name).flops(7) == 7 * (1 + 2)


@pytest.mark.parametrize("name", registry.names("block"))
def test_dropout_acts_on_what_is_added_in_training_only(block, context, name):
    b, x = block(name, dropout=0.5), torch.randn(2, 5, D, dtype=torch.float64)
    assert torch.equal(b.eval()(x, context(5)), b(x, context(5)))
    assert not torch.equal(b.train()(x, context(5)), b(x, context(5)))
    with torch.no_grad():
        for part in ("mixer", "ffn"):
            b.get_submodule(part).map.weight.zero_(), b.get_submodule(part).map.bias.zero_()
    once = b.eval()(x, context(5))
    assert torch.equal(b.train()(x, context(5)), once), "the stream itself is never dropped"


def norms(b):
    return [child for name, child in b.named_children() if name.endswith("norm")]


@pytest.mark.parametrize("name", registry.names("block"))
def test_a_norm_of_its_own_replaces_the_models(block, name):
    b = block(name, norm={"name": "layernorm"})
    assert {type(m).__name__ for m in norms(b)} == {"LayerNorm"}
    assert {type(m).__name__ for m in norms(block(name))} == {"RMSNorm"}


def test_only_an_unnormalised_stream_needs_a_final_norm():
    needs = {name for name in registry.names("block") if registry.find("block", name).needs_final_norm}
    assert needs == set(registry.names("block")) - {"post_norm"}


@pytest.mark.parametrize(("layers", "knobs", "warned"), [
    (12, {}, False), (13, {}, True), (13, {"residual": {"name": "constant", "stream": 2.26}}, False)
])  # fmt: skip
def test_a_deep_plain_post_norm_is_told(config, site, layers, knobs, warned):
    chosen = config("block", "post_norm", **knobs)
    told = [finding for finding in chosen.component.check(chosen, site(n_layers=layers)) if finding.status == "WARN"]
    assert bool(told) == warned
    assert all("stream: 2.26" in finding.fix and finding.section == 4 for finding in told)  # (2 * 13)^(1/4)


@pytest.mark.parametrize("name", sorted(set(registry.names("block")) - {"post_norm"}))
def test_other_blocks_may_be_deep(config, site, name):
    chosen = config("block", name)
    assert not list(chosen.component.check(chosen, site(n_layers=99)))
