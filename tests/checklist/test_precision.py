"""What must be in float32 and isn't, planted; and what is as it should be, though float64 knows no number for it."""

import pytest

from builder.checklist import check
from builder.checklist.probes import precision, specimen
from builder.checklist.probes.lesson import Lesson
from builder.checklist.subject import Subject
from builder.finding import Status
from builder.frozen import FrozenDict
from tests.checklist.mistaught import HalfRoots, HalfSums, RMSNorm, RoundsLogits
from tests.checklist.planted import HalfSoftmax, HidesWithTheLeast, LeastAndPads

NORM, LOSS, ATTENTION = "model.norm", "objective", "model.attention"
KNOBS = {NORM: {}, LOSS: {}, ATTENTION: {"n_heads": 4}}
# class: (slot, what is found; None: nothing)
LOOKED_AT = {
    HalfSums: (NORM, "statistics in bfloat16 (sum)"),
    HalfRoots: (NORM, "statistics in bfloat16 (sqrt)"),
    HalfSoftmax: (ATTENTION, "a softmax in bfloat16 (_softmax)"),
    RoundsLogits: (LOSS, "rounded to bfloat16 (_to_copy) at the loss"),
    RMSNorm: (NORM, None),
    HidesWithTheLeast: (ATTENTION, None),
}


@pytest.fixture
def planted(plant, run):
    """planted(cls, slot, changes): a run with an heir of this class in a slot."""

    def made(cls, slot, changes=()):
        heir = type(f"Heir{cls.__name__}", (cls,), {"__module__": __name__})
        plant(slot.removeprefix("model."), "planted")(heir)
        return run({slot: {"name": "planted", **KNOBS[slot]}, **dict(changes)})

    return made


@pytest.mark.parametrize("cls", LOOKED_AT, ids=lambda cls: cls.__name__)
def test_what_needs_float32_and_has_it_not_is_named(planted, cls):
    """It stops a run that it touches: one of half precision, or one of float32 where that is what is rounded."""
    slot, what = LOOKED_AT[cls]
    lesson = Subject(planted(cls, slot), True, None, None).lesson
    for asked, touched in (("32-true", cls is RoundsLogits), ("bf16-mixed", cls is not RoundsLogits)):
        run = lesson.run.model_copy(update={"trainer": FrozenDict({**lesson.run.trainer, "precision": asked})})
        told = list(precision.prove(Lesson(lesson.specimen, run)))
        if what is None:
            assert [finding.status for finding in told] == [Status.PASS], told
            continue
        assert [(f.status, f.path) for f in told] == [(Status.FAIL if touched else Status.WARN, slot)], told
        assert what in told[0].found


@pytest.mark.parametrize("cls", [HidesWithTheLeast, LeastAndPads], ids=lambda cls: cls.__name__)
def test_what_float32_can_hold_alone_is_no_fault(planted, cls):
    """The least number of float64 is minus infinity in float32: what else is wrong of who uses it stays wrong."""
    spec = planted(cls, ATTENTION)
    assert specimen(spec.model).overflows
    report = check(spec)
    told = [finding.found for finding in report.findings if finding.status in (Status.FAIL, Status.WARN)]
    assert bool(told) == (cls is LeastAndPads), f"{report}"
    assert all("pad" in found for found in told), f"{report}"


def test_no_component_of_the_house_overflows(run):
    assert not specimen(run().model).overflows
