"""Probes against planted faults: each fault in a registered component is seen by the probe that should see it."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from builder import registry
from builder.component import Config as BaseConfig
from builder.finding import Finding, Status
from builder.model.positions import Positions
from tests import choices

GQA = registry.find("attention", "gqa")
GLU = registry.find("ffn", "glu")
RoPE = registry.find("position", "rope")
Sinusoidal = registry.find("position", "sinusoidal")


class Right(GQA):
    """No fault at all."""


class Window(GQA):
    """No fault: it sees two tokens, and says so."""

    def sees(self, mask):
        return mask.within(2)


class Unmasked(GQA):
    """Ignores the causal mask."""

    def forward(self, x, ctx):
        return super().forward(x, replace(ctx, mask=replace(ctx.mask, causal=False)))


class LeaksByState(GQA):
    """Ignores the causal mask only behind a state, where no pass in training ever is."""

    def forward(self, x, ctx):
        return super().forward(x, ctx if ctx.state is None else replace(ctx, mask=replace(ctx.mask, causal=False)))


class Forgets(GQA):
    """Reads its state, but never what came before this pass."""

    def forward(self, x, ctx):
        return super().forward(x, replace(ctx, state=None, mask=replace(ctx.mask, past=0, real=None)))


class Alone(GQA):
    """Sees itself only, and doesn't say so."""

    def forward(self, x, ctx):
        return super().forward(x, replace(ctx, mask=ctx.mask.within(1)))


class Hides(GQA):
    """Sees two tokens, and doesn't say so."""

    def forward(self, x, ctx):
        return super().forward(x, replace(ctx, mask=ctx.mask.within(2)))


class Wider(GQA):
    """Says that it sees two tokens, and sees three."""

    def sees(self, mask):
        return mask.within(2)

    def look(self, q, k, v, ctx, span=None):
        self.sees = lambda mask: mask.within(3)
        seen = super().look(q, k, v, ctx, span)
        del self.sees
        return seen


class ShortRing(GQA):
    """Keeps one slot less than its window reads."""

    def new_state(self, batch, max_length, **like):
        window, self.window = self.window, 2
        state = super().new_state(batch, max_length, **like)
        self.window = window
        return state

    def sees(self, mask):
        return mask.within(3)


class SeesPads(GQA):
    """Ignores the padding mask."""

    def forward(self, x, ctx):
        return super().forward(x, replace(ctx, mask=replace(ctx.mask, real=None)))


class SeesOtherDocuments(GQA):
    """Ignores the documents of a packed row."""

    def forward(self, x, ctx):
        return super().forward(x, replace(ctx, mask=replace(ctx.mask, segments=None)))


class SeesNothing(GQA):
    """Has no key for any query but the first."""

    def sees(self, mask):
        return mask.within(0)


class LeaksInTraining(GQA):
    """Looks ahead where it is trained, and nowhere else."""

    def forward(self, x, ctx):
        return super().forward(x + 0.1 * x.roll(-1, 1) if self.training else x, ctx)


class FirstRowsMask(GQA):
    """Takes the padding of the first row for that of all."""

    def sees(self, mask):
        return mask if mask.real is None else replace(mask, real=mask.real[:1].expand_as(mask.real))


class PicksOneRow(GQA):
    """Has a state whose new rows are all the first one."""

    def new_state(self, *given, **like):
        state = super().new_state(*given, **like)
        picked = state.picked
        state.picked = lambda index, gap=0: picked(torch.zeros_like(index), gap)
        return state


class TakesNothingBack(GQA):
    """Has a state that stays where it is when tokens are taken back."""

    def new_state(self, *given, **like):
        state = super().new_state(*given, **like)
        state.rewind = lambda mark, kept: setattr(state, "used", mark.used - 1)
        return state


class Shifts(GLU):
    """Reads the token before, too."""

    def forward(self, x, ctx):
        return super().forward(x + x.roll(1, 1), ctx)


class StaysInPlace(GQA):
    """Keeps its rows where they are when those of the state change places."""

    def new_state(self, *given, **like):
        state = super().new_state(*given, **like)
        state.reorder = lambda index: None
        return state


class Modest(GQA):
    """Has a state that says it takes half of what it does."""

    def new_state(self, *given, **like):
        state = super().new_state(*given, **like)
        state.bytes = lambda: state.keys.nbytes
        return state


class PlacedRoPE(RoPE):
    """Writes its place into a query, beside turning it."""

    def rotate(self, x, positions):
        return super().rotate(x, positions) + 0.1 * positions.ids[..., None, None].to(x.dtype)


class SilentSines(Sinusoidal):
    """Writes nothing into the tokens."""

    def embed(self, x, positions):
        return x


class HalfAngles(RoPE):
    """Turns by angles that were made in the dtype of the model (C09)."""

    def rotate(self, x, positions):
        angles = positions.ids[..., None, None].to(x.dtype) * torch.ones(x.shape[-1], dtype=x.dtype)
        return x * angles.cos() + x.flip(-1) * angles.sin()


class RoundedAngles(RoPE):
    """Multiplies positions and speeds in the dtype of the model, and is careful from there on."""

    def rotate(self, x, positions):
        pairs = x.shape[-1] // 2
        speeds = self._frequencies(x.shape[-1], positions).to(x.dtype)
        angles = (positions.ids[..., None, None].to(x.dtype) * speeds).to(torch.promote_types(x.dtype, torch.float32))
        a, b = x[..., :pairs], x[..., pairs:]
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class LateRoPE(RoPE):
    """One position late in decode."""

    def rotate(self, x, positions):
        return super().rotate(x, Positions(positions.ids + 1) if x.shape[1] == 1 else positions)


class LateSines(Sinusoidal):
    """One position late in decode."""

    def embed(self, x, positions):
        return super().embed(x, Positions(positions.ids + 1) if x.shape[1] == 1 else positions)


class CountsPads(Sinusoidal):
    """Counts the pads in front, which the positions it is given don't."""

    def embed(self, x, positions):
        pads = (positions.ids == 0).sum(-1, keepdim=True) - 1
        return super().embed(x, Positions(positions.ids + pads.clamp_min(0)))


class Liar(GLU):
    """Says that it costs half of what it does."""

    def flops(self, tokens):
        return super().flops(tokens) // 2


class HiddenProduct(GLU):
    """Multiplies what it doesn't state."""

    def forward(self, x, ctx):
        return super().forward(x, ctx) + 0 * (x @ x.transpose(1, 2) @ x)


class NoRole(GLU):
    """Holds a parameter that nobody described."""

    def __init__(self, config, site):
        super().__init__(config, site)
        self.temperature = nn.Parameter(torch.ones(site.d_model))

    def forward(self, x, ctx):
        return super().forward(x, ctx) * self.temperature


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
