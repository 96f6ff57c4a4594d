"""Probes against planted faults: each fault in a registered component is seen by the probe that should see it."""

import pytest
import torch

from builder import registry
from builder.component import Config as BaseConfig
from builder.finding import Finding, Status
from tests import choices
from tests.checklist.planted import (
    GLU,
    GQA,
    Alone,
    CountsPads,
    FirstRowsMask,
    Forgets,
    HalfAngles,
    HiddenProduct,
    Hides,
    LateRoPE,
    LateSines,
    LeaksByState,
    LeaksInTraining,
    Liar,
    LosesToPads,
    Modest,
    NoRole,
    PadsTakeRoom,
    PicksOneRow,
    PlacedRoPE,
    Right,
    RoPE,
    RoundedAngles,
    SeesNothing,
    SeesOtherDocuments,
    SeesPads,
    Shifts,
    ShortRing,
    SilentSines,
    Sinusoidal,
    StaysInPlace,
    TakesNothingBack,
    Unmasked,
    Wider,
    Window,
)

ATTENTION, FFN, POSITION = "model.attention", "model.ffn", "model.position"
KNOBS = {ATTENTION: {"n_heads": 4}, FFN: {"d_ff": 48}, POSITION: {}}
# class: (slot, the findings that are no PASS: (status, section, a part of what is found))
FAULTS = {
    Unmasked: (ATTENTION, [("FAIL", 2, "moves with token"), ("FAIL", 2, "the whole model"), ("FAIL", 3, "split")]),
    LeaksByState: (ATTENTION, [("FAIL", 3, "split")]),
    Forgets: (ATTENTION, [("FAIL", 3, "split")]),
    Alone: (ATTENTION, [("WARN", 2, "ignores token"), ("WARN", 2, "the whole model")]),
    Hides: (ATTENTION, [("WARN", 2, "ignores token"), ("WARN", 2, "the whole model")]),
    Wider: (ATTENTION, [("FAIL", 2, "moves with token"), ("FAIL", 2, "the whole model")]),
    ShortRing: (ATTENTION, [("FAIL", 3, "split")]),
    SeesPads: (ATTENTION, [("FAIL", 3, "pads on the left"), ("FAIL", 2, "padded: the output at")]),
    SeesOtherDocuments: (ATTENTION, [("FAIL", 2, "layer, packed"), ("FAIL", 2, "the whole model, packed")]),
    SeesNothing: (ATTENTION, [("FAIL", 2, "the query at 0 sees no key")]),
    StaysInPlace: (ATTENTION, [("FAIL", 3, "three rows become")]),
    Modest: (ATTENTION, [("FAIL", 1, "bytes of state stated")]),
    LeaksInTraining: (ATTENTION, [("FAIL", 2, "moves with token 1, in training alone")]),
    FirstRowsMask: (ATTENTION, [("FAIL", 2, "three rows at once and one by one")]),
    PadsTakeRoom: (ATTENTION, [("FAIL", 3, "between tokens")]),
    LosesToPads: (ATTENTION, [("FAIL", 3, "between tokens, with a state")]),
    PicksOneRow: (ATTENTION, [("FAIL", 3, "in a state of their own")]),
    TakesNothingBack: (ATTENTION, [("FAIL", 3, "taken back")]),
    Shifts: (FFN, [("FAIL", 2, "what layers.0.ffn says")]),
    RoundedAngles: (POSITION, [("WARN", 4, "position 1000 in bfloat16")]),
    PlacedRoPE: (POSITION, [("FAIL", 3, "all positions 3 further")]),
    SilentSines: (POSITION, [("FAIL", 3, "all positions 3 further")]),
    HalfAngles: (
        POSITION,
        [("FAIL", 3, "all positions 3 further"), ("WARN", 4, "angles in bfloat16 (cos) at positions.model")],
    ),
    LateRoPE: (POSITION, [("FAIL", 3, "split")]),
    LateSines: (POSITION, [("FAIL", 3, "split")]),
    CountsPads: (POSITION, [("FAIL", 3, "pads on the left")]),
    Liar: (FFN, [("FAIL", 1, "FLOPs stated")]),
    HiddenProduct: (FFN, [("FAIL", 1, "FLOPs stated")]),
    NoRole: (FFN, [("FAIL", 4, "GLU, no role"), ("FAIL", 4, "no role")]),
}


@pytest.fixture
def judged(plant, judge):
    """judged(cls, slot): the report on the passing config with a class planted in a slot."""

    def run(cls, slot):
        plant(slot.removeprefix("model."), "planted")(cls)
        return judge({slot: {"name": "planted", **KNOBS[slot]}}, probes=True)

    return run


@pytest.mark.parametrize("cls", FAULTS, ids=lambda cls: cls.__name__)
def test_a_planted_fault_is_seen(judged, cls):
    slot, expected = FAULTS[cls]
    report = judged(cls, slot)
    told = [finding for finding in report.findings if finding.status is not Status.PASS]
    for status, section, found in expected[:1] if cls is NoRole else expected:
        found = found.replace("GLU", cls.__name__)
        assert any(f.status == status and f.section == section and found in f.found for f in told), f"{report}"
    assert report.ok == all(status != "FAIL" for status, *_ in expected)


@pytest.mark.parametrize(
    ("cls", "slot"),
    [(Right, ATTENTION), (Window, ATTENTION), (GQA, ATTENTION), (GLU, FFN), (RoPE, POSITION), (Sinusoidal, POSITION)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_what_has_no_fault_passes(judged, cls, slot):
    heir = type(f"Heir{cls.__name__}", (cls,), {"__module__": __name__})
    report = judged(heir, slot)
    assert report.ok and report.counts["WARN"] == 0, f"{report}"


@pytest.mark.parametrize(
    ("cls", "passes"),
    [
        (LeaksByState, (2, "the whole model")),
        (SeesPads, (3, "split")),
        (CountsPads, (3, "split")),
        (Liar, (2, "model")),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_other_probes_do_not_blame_it(judged, cls, passes):
    section, found = passes
    report = judged(cls, FAULTS[cls][0])
    told = [f for f in report.findings if f.section == section and found in f.found]
    assert told and all(f.status is Status.PASS for f in told), f"{report}"


@pytest.mark.parametrize("room", ["attention", "ffn", "position", "block", "norm"])
def test_every_component_there_is_passes_its_probes(judge, room):
    for name in choices.mixers(room) if room == "attention" else registry.names(room):
        report = judge({f"model.{room}": choices.slot(room, name)}, probes=True)
        assert report.ok and report.counts["WARN"] == 0, f"{name}\n{report}"


def test_a_bag_of_words_is_told(judge):
    encoder = {"model.kind": "encoder", "objective": {"name": "masked"}}
    for position, status in (("none", "WARN"), ("rope", "PASS")):
        report = judge({POSITION: {"name": position}, **encoder}, probes=True)
        (told,) = [finding for finding in report.findings if "each other's place" in finding.found]
        assert told.status == status


def test_the_layer_whose_state_is_wrong_is_named(plant, judge):
    plant("attention", "planted")(Forgets)
    slots = {"model.local": {"name": "planted", "n_heads": 4}, "model.pattern": ["attention+ffn", "local+ffn"]}
    report = judge(slots, probes=True)
    assert [f.path for f in report.failures if "split" in f.found] == ["model.local"]


@pytest.mark.parametrize("kernel", registry.names("kernel"))
def test_every_kernel_passes_the_probes(judge, kernel):
    attention = {"name": "gqa", "n_heads": 4, "n_kv_heads": 2, "d_head": 16, "kernel": kernel}
    assert judge({ATTENTION: attention, "trainer.accelerator": "auto"}, probes=True).ok


def test_a_component_without_a_verdict_is_unknown(plant, judge):
    Position = RoPE.__mro__[1]

    class Silent(Position):
        class Config(BaseConfig):
            name: str = "silent"

    plant("position", "silent")(Silent)
    report = judge({POSITION: {"name": "silent"}}, probes=True)
    assert [f.status for f in report.findings if f.path == "model.position.name"] == [Status.UNKNOWN]


SINKS = {"name": "gqa", "n_heads": 4, "n_kv_heads": 2, "sinks": True}


@pytest.mark.parametrize("position", ["rope", "alibi", "t5"])
def test_a_kernel_that_works_more_than_the_formula_is_no_fault(judge, position):
    report = judge({ATTENTION: SINKS, POSITION: choices.slot("position", position)}, probes=True)
    assert report.ok and any("as stated" in finding.found for finding in report.findings), f"{report}"


def test_the_angles_past_the_original_length_are_proven(judge, monkeypatch):
    scaled = {"name": "rope", "scaling": {"name": "dynamic", "factor": 4.0}}
    changes = {POSITION: scaled, "model.deploy_length": 512}
    assert judge(changes, probes=True).ok
    dynamic = registry.find("scaling", "dynamic")
    whole = dynamic.frequencies

    def broken(self, theta, width, reach, device):
        right = whole(self, theta, width, reach, device)
        return torch.where(torch.as_tensor(reach > self.original), torch.nan, right)

    monkeypatch.setattr(dynamic, "frequencies", broken)
    assert not judge(changes, probes=True).ok


def test_what_a_slot_in_a_slot_says_is_told(plant, judge):
    RMSNorm = registry.find("norm", "rmsnorm")

    class Loud(RMSNorm):
        class Config(RMSNorm.Config):
            name: str = "loud"

        @classmethod
        def check(cls, config, site):
            yield Finding(Status.WARN, 4, "eps", "loud", "said by the norm itself")

    plant("norm", "loud")(Loud)
    report = judge({ATTENTION: {"name": "gqa", "n_heads": 4, "qk_norm": {"name": "loud"}}})
    assert [f.path for f in report.findings if f.found == "loud"] == ["model.attention.qk_norm.eps"]


def test_what_a_verdict_raises_is_told(plant, judge):
    RMSNorm = registry.find("norm", "rmsnorm")

    class Mute(RMSNorm):
        class Config(RMSNorm.Config):
            name: str = "mute"

        @classmethod
        def check(cls, config, site):
            raise ZeroDivisionError("no verdict")

    plant("norm", "mute")(Mute)
    report = judge({"model.norm": {"name": "mute"}})
    assert [(f.path, f.status) for f in report.failures] == [("model.norm.name", Status.FAIL)]
    assert "no verdict" in report.failures[0].found and "test_probes.py" in report.failures[0].found
