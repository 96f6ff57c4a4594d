"""Every rule about mixtures of experts: a config that breaks it, where it is told, and that the fix mends it."""

import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from builder.component import Config as BaseConfig
from builder.components.ffn import FFN
from builder.finding import Status
from builder.model.linear import Linear
from tests.choices import slot

GLU = {"name": "glu", "d_ff": 24}
MOE = slot("ffn", "moe", expert=GLU)
GROUPED = {"name": "grouped_topk", "n_groups": 4, "top_groups": 2}
SWITCH = {"top_k": 1, "router": {"name": "switch"}}
EXPERTS = {"router": {"name": "expert_choice"}, "balance": False}

# what breaks it; (status, section, path below the slot, parts of what is found, of the rule, of the fix); what mends it
BROKEN = {
    "more choices than experts": (
        {"n_experts": 2, "top_k": 3},
        ("FAIL", 5, "top_k", "X 2 experts, k 3", "3 different experts of 2", "n_experts=6"),
        {"n_experts": 6, "top_k": 3},
    ),
    "as many choices as experts": (
        {"n_experts": 2, "top_k": 2, "balance": False},
        ("WARN", 5, "top_k", "X 2 experts, k 2", "nothing is routed", "n_experts=8"),
        {},
    ),
    "a balance for as many choices as experts": (
        {"n_experts": 2, "top_k": 2},
        ("WARN", 5, "balance", "aux_loss 0.01", "without effect: every token goes to every expert", "balance=false"),
        {"n_experts": 2, "top_k": 2, "balance": False},
    ),
    "no balance said": (
        {"balance": None},
        ("FAIL", 5, "balance", "none", "nothing keeps the router", "balance=false if none is wanted"),
        {},
    ),
    "no balance on purpose": (
        {"balance": False},
        ("WARN", 5, "balance", "none, on purpose", "as asked for", "balance={aux_loss: 0.01}"),
        {},
    ),
    "a switch with two choices": (
        {"router": {"name": "switch"}},
        ("FAIL", 5, "top_k", "2", "a switch sends each token to one expert", "top_k=1"),
        SWITCH,
    ),
    "a weight that is always one": (
        {"top_k": 1},
        ("WARN", 5, "router", "renormalised, with top_k 1", "no gradient of the task", "switch"),
        {"top_k": 1, "router": {"name": "topk", "weights": "plain"}},
    ),
    "a weight that is always one, with noise": (
        {"top_k": 1, "router": {"name": "noisy_topk"}},
        ("WARN", 5, "router", "selected, with top_k 1", "no gradient of the task", "switch"),
        SWITCH,
    ),
    "experts that choose in a decoder": (
        EXPERTS,
        ("FAIL", 2, "router", "expert_choice in a decoder", "tells of later ones", "router={name: topk}"),
        {},
    ),
    "a balance of what balances itself": (
        EXPERTS | {"balance": {"aux_loss": 0.01}},
        ("WARN", 5, "balance", "aux_loss 0.01", "expert_choice balances by construction", "balance=false"),
        None,
    ),
    "groups that don't divide the experts": (
        {"router": GROUPED | {"n_groups": 3}},
        ("FAIL", 5, "router.n_groups", "3", "must divide n_experts=8", "router.n_groups=2"),
        {"router": GROUPED},
    ),
    "more groups searched than there are": (
        {"router": GROUPED | {"top_groups": 5}},
        ("FAIL", 5, "router.top_groups", "5", "at most the n_groups=4", "router.top_groups=4"),
        {"router": GROUPED},
    ),
    "the best two of one": (
        {"router": GROUPED | {"n_groups": 8}},
        ("FAIL", 5, "router.group_score", "two", "a group holds 1 expert", "router.group_score=best"),
        {"router": GROUPED | {"n_groups": 8, "group_score": "best"}},
    ),
    "too few experts in the groups": (
        {"top_k": 5, "router": GROUPED},
        ("FAIL", 5, "router.top_groups", "2", "2 groups of 2 experts hold too few for top_k=5", "router.top_groups=3"),
        {"top_k": 5, "router": GROUPED | {"top_groups": 3}},
    ),
    "groups that limit nothing": (
        {"router": GROUPED | {"top_groups": 4}},
        ("WARN", 5, "router.top_groups", "4 of 4", "all groups are searched", "router={name: topk}"),
        {},
    ),
    "groups that hold the best experts anyway": (
        {"router": GROUPED | {"group_score": "best"}},
        ("WARN", 5, "router.top_groups", "2 of 4, compared by best", "the 2 best experts lie", "router={name: topk}"),
        {"router": GROUPED},
    ),
    "a capacity outside of training": (
        {"eval_capacity_factor": 1.25},
        ("WARN", 5, "eval_capacity_factor", "capacity_factor 1.25 outside of training", "prefill, decode", "=null"),
        {},
    ),
    "later tokens before earlier ones": (
        {"capacity_factor": 1.25},
        ("WARN", 2, "capacity_factor", "top_k 2, overflow drop", "tells of the future", "top_k=1"),
        SWITCH | {"capacity_factor": 1.25},
    ),
    "later tokens before earlier ones, when they go elsewhere": (
        SWITCH | {"capacity_factor": 1.25, "overflow": "reroute"},
        ("WARN", 2, "capacity_factor", "top_k 1, overflow reroute", "tells of the future", "null"),
        {"capacity_factor": 1.25, "overflow": "expand"},
    ),
    "a capacity below one": (
        SWITCH | {"capacity_factor": 0.5},
        ("WARN", 5, "capacity_factor", "overflow drop: ", "some overflow even when spread evenly", "1.0 or more"),
        SWITCH | {"capacity_factor": 1.0},
    ),
    "a capacity that rounds to nothing": (
        SWITCH | {"capacity_factor": 1e-6},
        ("WARN", 5, "capacity_factor", "1 of ", "rounds to nothing", "or null"),
        SWITCH | {"capacity_factor": None},
    ),
    "a capacity of the whole pass": (
        SWITCH | {"capacity_factor": 8.0},
        ("WARN", 5, "capacity_factor", "overflow drop: ", "nothing ever overflows", "capacity_factor=null"),
        SWITCH | {"capacity_factor": 7.9},
    ),
    "an expert narrower than half the stream": (
        {"expert": GLU | {"d_ff": 12}},
        ("WARN", 1, "expert.d_ff", "d_ff 12", "nor can 2 such", "d_ff=128"),
        {"expert": GLU | {"d_ff": 16}},
    ),
    "a shared expert narrower than a third of the stream": (
        {"shared": GLU | {"d_ff": 10}},
        ("WARN", 1, "shared.d_ff", "d_ff 10", "can't carry what it reads", "d_ff=128"),
        {"shared": GLU | {"d_ff": 12}},
    ),
}  # fmt: skip


@pytest.fixture
def about(judge):
    """about(knobs, probes=False): the report on the passing model with such a mixture for its ffn."""
    return lambda knobs=(), probes=False: judge({"model.ffn": MOE | dict(knobs)}, probes=probes)


def key(finding):
    return finding.section, finding.path, finding.status


def test_the_mixture_they_start_from_passes(about):
    for probes in (True, False):
        report = about(probes=probes)
        assert report.ok and not [f for f in report.findings if f.status is Status.WARN], str(report)
    said = {finding.path: finding for finding in report.findings if finding.section == 5}
    assert "2 of 8" in said["model.ffn.top_k"].rule and "aux_loss 0.01" in said["model.ffn.balance"].found
    assert "dropless" in said["model.ffn.capacity_factor"].rule


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_told_and_the_fix_mends_it(about, case):
    broken, (status, section, path, found, rule, fix), mended = BROKEN[case]
    report = about(broken)
    wanted = (section, f"model.ffn.{path}", Status(status))
    told = [finding for finding in report.findings if key(finding) == wanted]
    assert told, str(report)
    assert found in told[0].found and rule in told[0].rule and fix in told[0].fix, told
    if mended is not None:
        assert report.ok == (status != "FAIL")
        after = about(mended)
        assert wanted not in map(key, after.findings) and after.ok, str(after)


PASSING = {
    "groups": {"router": GROUPED},
    "a switch": SWITCH | {"capacity_factor": 1.25, "expert": GLU | {"d_ff": 48}},
    "noise": {"router": {"name": "noisy_topk"}},
    "a bias": {"balance": {"bias_speed": 0.001}},
    "each sequence": {"balance": {"sequence_loss": 0.001}},
    "shared": {"shared": GLU | {"d_ff": 48}, "shared_gate": True},
    "an mlp": {"expert": {"name": "mlp", "d_ff": 24}},
    "everything is proven with a capacity too": {"capacity_factor": 1.0, "overflow": "expand"},
}  # fmt: skip


@pytest.mark.parametrize("case", PASSING)
def test_what_is_right_passes_with_its_probes(about, case):
    report = about(PASSING[case], probes=True)
    assert report.ok and not [finding for finding in report.findings if finding.status is Status.WARN], str(report)
    assert all(finding.found != "not run" for finding in report.findings), "a probe was left out"


FELT = {"aux_loss": 0.01}
UNFELT = {
    "no gradient left": ({"aux_loss": 1e-30}, "aux_loss", "changes nothing"),
    "too weak": ({"aux_loss": 1e-9}, "aux_loss", "too weak to be felt"),
    "too strong": ({"aux_loss": 1e7}, "aux_loss", "no say"),
    "one that is felt beside one that isn't": ({"aux_loss": 0.01, "z_loss": 1e-9}, "z_loss", "too weak to be felt"),
    "preferences that stand still": ({"bias_speed": 1e-9}, "preferences", "nobody is chosen for it"),
}


@pytest.mark.parametrize("case", UNFELT)
def test_what_acts_too_little_or_too_much_is_told(about, case):
    balance, what, rule = UNFELT[case]
    told = [finding for finding in about({"balance": balance}, probes=True).findings if finding.status is Status.WARN]
    assert len(told) == 1 and what in told[0].found and rule in told[0].rule, told
    assert told[0].path.startswith("model.ffn.balance.") and "model.ffn.balance" in told[0].fix
    assert not any(finding.status is Status.WARN for finding in about({"balance": FELT}, probes=True).findings)


def test_what_every_token_passes_through_needs_no_balance(about):
    for balance in (None, False):
        report = about({"n_experts": 2, "top_k": 2, "balance": balance})
        (told,) = [finding for finding in report.findings if finding.path == "model.ffn.balance"]
        assert told.status is Status.PASS and "every token goes to every expert" in told.rule and report.ok


def test_experts_that_choose_may_stand_where_nothing_is_predicted(moe_site):
    config, site = moe_site(EXPERTS)
    findings = list(config.component.check(config, site)) + list(config.component.judge_pass(config, 64))
    assert not [finding for finding in findings if finding.status is not Status.PASS], findings
    assert any("as many tokens as every other" in finding.rule for finding in findings)


@pytest.fixture
def moe_site(run):
    def make(knobs):
        model = run({"model.ffn": MOE | knobs}).model
        return model.slots["ffn"], replace(model.site(0), causal=False)

    return make


def test_the_seats_that_are_told_are_those_of_a_pass(about, run):
    spec = run()
    tokens = spec.rows * spec.model.train_length
    found = [f for f in about(SWITCH | {"capacity_factor": 1.25}).findings if f.path == "model.ffn.capacity_factor"]
    assert f"{tokens * 5 // 4 // 8} of {tokens:,} tokens" in found[0].found


class Scaled(FFN):
    """An ffn with a parameter that is in no linear map: relu(x W_up) s W_down."""

    class Config(BaseConfig):
        """No knobs."""

        name: str = "scaled"

    roles = {"scale": "scale"}

    def __init__(self, config, site):
        super().__init__()
        self.up, self.down = Linear(site.d_model, 8), Linear(8, site.d_model, role="residual")
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x, ctx):
        return self.down(self.up(x).relu() * self.scale)


def test_any_ffn_can_be_an_expert(about):
    """It costs and is proven as one made of linear maps alone."""
    report = about({"expert": {"name": f"{__name__}:Scaled"}}, probes=True)
    assert report.ok and not [finding for finding in report.findings if finding.status is Status.WARN], str(report)
    idle = 2 * (8 - 2) * (2 * 32 * 8 + 8)  # layers, experts that a token doesn't meet, their parameters
    counts = re.findall(r"([\d,]+) (?:parameters|active)", _costs(report))
    total, active = (int(count.replace(",", "")) for count in counts)
    assert total - active == idle


def _costs(report):
    return next(finding.found for finding in report.findings if "active per token" in finding.found)
