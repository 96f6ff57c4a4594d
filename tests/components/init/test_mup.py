"""mu-P by the tables of Tensor Programs V: deviations, rates and multipliers at m = 4, and what is told of each."""

import math
from functools import cache

import pytest
import torch

from builder import build, check, compose, load
from builder.finding import Status

BASE, WIDE = 64, 256  # m = 4
SMALL = ["model.n_layers=2", "model.train_length=16", "model.deploy_length=16", "model.attention.d_head=16"]
SIZES = {
    width: [f"model.d_model={width}", f"model.attention.n_heads={width // 16}", f"model.ffn.d_ff={2 * width}"]
    for width in (BASE, WIDE)
}
MUP = ["model/init=mup", f"model.init.base_d_model={BASE}"]
UNTIED = "model.tie_embeddings=false"
WRITES = 2 * 2


@cache
def spec_of(width, *more):
    return load(compose([*SMALL, *SIZES[width], *MUP, *more]))


def judged(spec):
    """What the checklist says, by path, of mu-P and of what it asks for."""
    paths = (
        "model.init",
        "model.head.scale",
        "model.embedding.scale",
        "model.attention.scale",
        "model.attention.d_head",
    )
    return {f.path: f for f in check(spec, probes=False).findings if f.path.startswith(paths)}


@pytest.mark.parametrize("tied", [True, False])
def test_deviations_at_four_times_the_base(tied):
    """Table 3: 1 / sqrt(fan_in) for what is inside, 1 / fan_in for the output; the input's is that of the base."""
    experts = ["model/ffn@model.moe=moe", "model.pattern=[attention+ffn,attention+moe]"]
    model = build(spec_of(WIDE, f"model.tie_embeddings={str(tied).lower()}", *experts).model, seed=0)
    deviations = {name: p.std().item() for name, p in model.named_parameters()}
    expected = {
        "embedding.weight": 0.02,
        "layers.0.mixer.q.weight": 0.02 / 2,
        "layers.0.mixer.o.weight": 0.02 / 2 / math.sqrt(WRITES),
        "layers.0.ffn.down.weight": 0.02 / 2 / math.sqrt(WRITES),
        "layers.1.ffn.experts.up.weight": 0.02 / 2,
        "layers.1.ffn.experts.down.weight": 0.02 / 2 / math.sqrt(WRITES),
        "layers.1.ffn.router.weight": 0.02 / 4,
    } | ({} if tied else {"head.weight": 0.02 / 4})
    for name, deviation in expected.items():
        assert deviations[name] == pytest.approx(deviation, rel=0.05), name
    assert all((p == 1).all() for name, p in model.named_parameters() if "norm" in name)


def test_the_one_head_of_multi_query_attention_is_a_readout():
    model = build(spec_of(WIDE, "model/attention=mqa").model, seed=0)
    deviations = {name: getattr(model.layers[0].mixer, name).weight.std().item() for name in "qkv"}
    assert deviations == pytest.approx({"q": 0.01, "k": 0.005, "v": 0.005}, rel=0.05)


@pytest.mark.parametrize("tied", ["true", "false"])
def test_the_base_is_the_standard_parametrisation(tied):
    tying = f"model.tie_embeddings={tied}"
    base, standard = spec_of(BASE, tying), spec_of(BASE, tying, "model/init=depth_scaled", "~model.init.base_d_model")
    assert base.model.model_copy(update={"init": standard.model.init}) == standard.model
    one, other = build(base.model, seed=3).state_dict(), build(standard.model, seed=3).state_dict()
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    init = base.model.init.component(base.model.init, base.model.site(0))
    assert {init.rate(role, (1, 1)) for role in ("matrix", "residual", "readout", "embedding", "scale")} == {1.0}


def test_rates_are_those_of_table_3():
    config = spec_of(WIDE).model
    init = config.init.component(config.init, config.site(0))
    rates = {role: init.rate(role, (WIDE, WIDE)) for role in ("matrix", "residual", "readout", "embedding", "scale")}
    assert rates == {"matrix": 1 / 4, "residual": 1 / 4, "readout": 1 / 4, "embedding": 1.0, "scale": 1.0}
    assert init.rate("bias", (WIDE,)) == init.rate("offset", (WIDE,)) == init.rate("own", (WIDE,)) == 1.0


# what it needs beside


def test_load_divides_the_logits_of_a_tied_head():
    """Table 8: the output multiplier is 1 / fan_in where the table is the input's too; an untied head needs none."""
    assert spec_of(WIDE).model.head.scale == 1 / 4
    assert spec_of(WIDE, UNTIED).model.head.scale is None
    assert spec_of(BASE).model.head.scale is None
    tokens = torch.arange(16)[None]
    whole = build(spec_of(WIDE, "model.head.scale=1.0").model, seed=0)(tokens).logits
    torch.testing.assert_close(build(spec_of(WIDE).model, seed=0)(tokens).logits, whole / 4)


def test_what_load_wrote_is_frozen_with_the_run():
    spec = spec_of(WIDE)
    assert spec.to_dict()["model"]["head"]["scale"] == 0.25
    assert load(spec.to_dict()) == spec
    assert judged(spec)["model.head.scale"].status is Status.PASS


def test_a_scale_of_ones_own_stays_and_is_told():
    spec = spec_of(WIDE, "model.head.scale=0.5")
    assert spec.model.head.scale == 0.5
    finding = judged(spec)["model.head.scale"]
    assert finding.status is Status.WARN and "multiplies by 2" in finding.rule
    assert finding.fix == "model.head.scale=0.25"


def test_half_of_mup_fails():
    """A spec that did not pass through `load` and left the multiplier out."""
    spec = spec_of(WIDE)
    head = spec.model.head.model_copy(update={"scale": None})
    spec = spec.model_copy(update={"model": spec.model.model_copy(update={"head": head})})
    finding = judged(spec)["model.head.scale"]
    assert (finding.status, finding.found, finding.fix) == (Status.FAIL, "null", "model.head.scale=0.25")


def test_scores_of_wider_heads_are_divided_by_their_width():
    """1 / d_h in place of 1 / sqrt(d_h), equal at the base's (Yang et al., definition 4.1)."""
    spec = spec_of(WIDE, "model.attention.d_head=64", "model.init.base_d_head=16")
    assert spec.model.attention.scale == pytest.approx((1 / 64) / (1 / 16) * 16**-0.5)
    assert judged(spec)["model.attention.scale"].status is Status.PASS
    assert spec_of(WIDE, "model.init.base_d_head=16").model.attention.scale is None  # as wide as the base's
    own = judged(spec_of(WIDE, "model.attention.d_head=64", "model.init.base_d_head=16", "model.attention.scale=0.125"))
    assert own["model.attention.scale"].status is Status.WARN


def test_scores_beside_a_recurrence_are_divided_too():
    hybrid = ["model/ssm@model.ssm=hybrid_head", "model.pattern=[ssm+ffn]", "~model.attention"]
    inner = ["model.ssm.attention.d_head=64", "model.init.base_d_head=16", "model.ssm.ssm.d_head=16"]
    settings = ["model.n_layers=2", "model.d_model=256", "model.ffn.d_ff=512", *MUP, *hybrid, *inner]
    assert load(compose(settings)).model.slots["ssm"].attention.scale == pytest.approx((1 / 64) / (1 / 16) * 16**-0.5)


def test_a_head_width_that_follows_from_others_is_asked_about():
    follows = judged(spec_of(WIDE, "model.attention.d_head=null"))["model.attention.d_head"]
    assert follows.status is Status.WARN and "model.attention.d_head=16" in follows.fix
    for settled in (["model.attention.d_head=16"], ["model.attention.d_head=null", "model.init.base_d_head=16"]):
        assert "model.attention.d_head" not in judged(spec_of(WIDE, *settled))
    assert "model.attention.d_head" not in judged(spec_of(BASE, "model.attention.d_head=null"))


def test_the_base_has_the_heads_that_it_says():
    finding = judged(spec_of(BASE, "model.init.base_d_head=32"))["model.attention.d_head"]
    assert finding.status is Status.FAIL and finding.fix == "model.init.base_d_head=null"


def test_an_embedding_that_grows_with_width_fails():
    finding = judged(spec_of(WIDE, "model.embedding.scale=sqrt_d_model"))["model.embedding.scale"]
    assert (finding.status, finding.fix) == (Status.FAIL, "model.embedding.scale=8")  # the root of the base's 64
    assert "model.embedding.scale" not in judged(spec_of(WIDE, "model.embedding.scale=8"))
    assert "model.embedding.scale" not in judged(spec_of(BASE, "model.embedding.scale=sqrt_d_model"))


def test_the_checklist_says_how_wide_it_is():
    assert judged(spec_of(WIDE))["model.init.base_d_model"].found == "base d 64, d 256: m = 4"
    assert "own std / m" in judged(spec_of(WIDE, UNTIED))["model.init.base_d_model"].rule
    assert judged(spec_of(BASE))["model.init.base_d_model"].rule == "as depth_scaled"
