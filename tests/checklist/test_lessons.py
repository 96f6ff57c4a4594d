"""Probes that train against planted faults: what is counted, who is reached, what is drawn, and which keys are read."""

import pytest
from torch import nn

from builder.checklist.probes import specimen, tying
from builder.finding import Status
from tests.checklist.mistaught import (
    GLU,
    AdamW,
    Ascends,
    AsksTheSame,
    Copies,
    CountsEverything,
    CountsHalf,
    CountsRows,
    CrossesDocuments,
    DrawsAnew,
    Falls,
    HalfStatistics,
    HidesNothing,
    Means,
    MixesRows,
    NextToken,
    NoNumber,
    RMSNorm,
    TargetsPadding,
    TargetsPrompts,
    Unreached,
)

SLOTS = {"ffn": {"d_ff": 48}, "norm": {}, "objective": {}, "optimizer": {"lr": 1e-3}}

# class: (slot, further overrides, status, section, path, a part of what is found)
FAULTS = {
    CountsEverything: ("objective", {}, "FAIL", 2, "objective", "has a gradient and isn't counted"),
    CountsHalf: ("objective", {}, "FAIL", 2, "objective", "have no gradient"),
    Copies: ("objective", {}, "FAIL", 2, "objective", "moves with it"),
    TargetsPadding: ("objective", {}, "FAIL", 2, "objective", "is padding"),
    TargetsPrompts: ("objective", {}, "FAIL", 2, "objective", "is a prompt"),
    CrossesDocuments: ("objective", {}, "FAIL", 2, "objective", "is of another document"),
    Falls: ("objective", {}, "FAIL", 2, "objective", "with every target 0.1 likelier"),
    Means: ("objective", {}, "FAIL", 2, "objective", "for the same rows twice"),
    CountsRows: ("objective", {}, "FAIL", 2, "objective", "50 targets in the mean, and 32 that count"),
    AsksTheSame: ("objective", {}, "FAIL", 2, "objective", "that no token of the data changes"),
    HidesNothing: ("objective", {"model.kind": "encoder"}, "FAIL", 2, "objective", "moves with it"),
    Unreached: ("model.ffn", {}, "FAIL", 4, "model.ffn", "spare and 1 more: no gradient"),
    NoNumber: (
        "model.ffn",
        {},
        "FAIL",
        4,
        "model.norm",
        "layers.1.ffn_norm.weight and 15 more: a gradient that is no",
    ),
    DrawsAnew: ("model.ffn", {}, "FAIL", 4, "seed", "two steps of one seed differ"),
    MixesRows: ("model.norm", {}, "FAIL", 2, "model.norm", "three rows at once and one by one"),
    HalfStatistics: (
        "model.norm",
        {"trainer.precision": "bf16-mixed"},
        "FAIL",
        4,
        "model.norm",
        "statistics in bfloat16 (mean) at layers.0",
    ),
    Ascends: ("optimizer", {}, "FAIL", 4, "optimizer", "nats before a step"),
}


@pytest.fixture
def judged(plant, judge):
    """judged(cls, slot, changes): the report on the passing config with a class planted in a slot."""

    def run(cls, slot, changes=(), **knobs):
        room = slot.removeprefix("model.")
        plant(room, "planted")(cls)
        return judge({slot: {"name": "planted", **SLOTS[room], **knobs}, **dict(changes)}, probes=True)

    return run


@pytest.mark.parametrize("cls", FAULTS, ids=lambda cls: cls.__name__)
def test_a_planted_fault_is_seen(judged, cls):
    slot, changes, status, section, path, found = FAULTS[cls]
    report = judged(cls, slot, changes)
    told = [f for f in report.findings if (f.status, f.section, f.path) == (status, section, path)]
    assert any(found in finding.found for finding in told), f"{report}"
    assert not report.ok and all(finding.fix for finding in told)


@pytest.mark.parametrize("cls", [NextToken, GLU, RMSNorm, AdamW], ids=lambda cls: cls.__name__)
def test_what_has_no_fault_passes(judged, cls):
    slot = next(slot for kind, (slot, *_) in FAULTS.items() if cls in kind.__mro__)
    report = judged(type(f"Heir{cls.__name__}", (cls,), {"__module__": __name__}), slot)
    assert report.ok and report.counts["WARN"] == 0, f"{report}"


def test_documents_are_crossed_when_that_is_asked_for(judge):
    report = judge({"objective": {"name": "next_token", "across_documents": True}}, probes=True)
    assert report.ok and any("no target is seen" in finding.found for finding in report.findings)


def test_half_precision_matters_where_it_is_asked_for(judged):
    report = judged(HalfStatistics, "model.norm")
    assert report.ok and any(f.status is Status.WARN and "(mean)" in f.found for f in report.findings), f"{report}"


@pytest.mark.parametrize("fused", [False, True])
def test_the_gradient_is_looked_at_where_the_loss_is_computed(judged, fused):
    report = judged(CountsEverything, "objective", {"fused_loss": fused})
    assert any("isn't counted" in finding.found for finding in report.failures)


@pytest.mark.parametrize(("rate", "why", "fix"), [(30.0, "too high", "optimizer.lr=0.03"), (1e-12, "too low", "0.001")])
def test_a_rate_is_told_from_a_wrong_direction(judge, rate, why, fix):
    (told,) = [f for f in judge({"optimizer.lr": rate}, probes=True).findings if f.path == "optimizer.lr"]
    assert told.status is Status.WARN and why in told.rule and fix in told.fix


def test_weights_that_part_in_a_step_are_seen(run):
    model = specimen(run().model).model
    assert [finding.status for finding in tying.after(model)] == [Status.PASS]
    model.head.weight = nn.Parameter(model.head.weight.detach() + 1)
    assert [finding.status for finding in tying.after(model)] == [Status.FAIL]


def test_a_head_that_multiplies_by_a_copy_is_seen(run):
    model = specimen(run().model)
    model.model.head.forward = lambda hidden, real=None: hidden @ model.model.head.weight.detach().T
    assert [(f.path, f.status) for f in tying.prove(model)] == [("model.head", Status.FAIL)]


def test_a_model_that_is_sure_of_what_is_wrong_is_told(judge):
    (told,) = [f for f in judge({"model.init": {"name": "normal", "std": 100.0}}, probes=True).findings
               if f.path == "model.init"]  # fmt: skip
    assert told.status is Status.WARN and "before the first step" in told.found


class Long(GLU):
    """Has a knob that matters for long texts alone, and one that is read with all others."""

    class Config(GLU.Config):
        chunk: int = 64
        strength: float = 1.0

    def __init__(self, config, site):
        super().__init__(config, site)
        self.config, self.strength = config, config.model_dump()["strength"]

    def forward(self, x, ctx):
        y = self.strength * super().forward(x, ctx)
        return y if x.shape[1] <= self.limit else y[:, : self.config.chunk].repeat(1, 2, 1)

    limit = 64


def test_a_key_that_is_read_elsewhere_is_no_dead_one(judged):
    report = judged(Long, "model.ffn", {"model.train_length": 128}, chunk=32, strength=2.0)
    assert not [finding for finding in report.failures if finding.path.startswith("model.ffn.")], f"{report}"


class Deaf(GLU):
    """Has a knob that nothing reads."""

    class Config(GLU.Config):
        temperature: float = 1.0


@pytest.mark.parametrize("value", [1.0, 2.0])
def test_a_key_that_nothing_reads_is_named(judged, value):
    report = judged(Deaf, "model.ffn", temperature=value)
    told = [finding for finding in report.failures if finding.path == "model.ffn.temperature"]
    if value == 1.0:  # its default: nobody meant anything by it
        assert report.ok and any("model.ffn.temperature" in f.rule for f in report.findings)
    else:
        assert [finding.fix for finding in told] == ["model.ffn.temperature=1.0, or leave it out"]


def test_no_probe_trains_where_nothing_is_to_be_trained(run):
    from builder.checklist import check

    report = check(run(), trains=False)
    assert not [finding for finding in report.findings if finding.path in ("optimizer", "seed", "trainer.precision")]


def test_what_the_objective_does_not_fit_is_not_taught(judge):
    report = judge({"objective": {"name": "masked"}}, probes=True)
    told = [finding for finding in report.findings if finding.path == "objective" and finding.section == 2]
    assert any(f.status is Status.UNKNOWN and "doesn't fit" in f.rule for f in told), f"{report}"
