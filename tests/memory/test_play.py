"""Playing a step leaves nothing behind, counts what is held, and gives of few layers what many would give."""

from __future__ import annotations

import pytest
import torch

from builder.memory import Bytes
from builder.memory.step import Work, passes, update
from builder.memory.walk import Walk
from builder.memory.watch import Watch
from tests.memory.test_forecast import CASES, spec_of


def test_a_storage_counts_once_and_until_its_end():
    with Watch() as watch:
        one = torch.empty(10)
        view = one[2:].view(2, 4)
        assert watch.held == Bytes(activations=40)
        with watch.labelled("weights"):
            other = one + one
        watch.move([view], "gradients")
        assert watch.held == Bytes(weights=40, gradients=40)
        watch.cut("next")
        del one
        assert watch.held.gradients == 40  # the view holds it
        del view, other
        last = watch.stretches()[-1]
    assert (last.name, last.start.total, last.peak.total, last.end.total) == ("next", 80, 80, 0)
    assert last.change == Bytes(weights=-40, gradients=-40)


def test_the_peak_is_that_of_a_moment_between():
    with Watch() as watch:
        kept = torch.empty(10)
        kept = (kept * 2 + 1).sum()
        (stretch,) = watch.stretches()
    assert stretch.peak.total == 3 * 40
    assert stretch.end.total == kept.nbytes


@pytest.mark.parametrize("case", ["deep", "hybrid", "first dense"])
def test_layers_of_a_kind_are_alike(case: str):
    """Each stretch of the whole model, to the byte, from at most three layers of a kind."""
    spec = spec_of(*CASES[case])
    work = Work(2, 2, "cpu", "32-true")
    walk = Walk(spec.model)
    assert walk.shallow.n_layers == 3 * len(spec.model.kinds) < spec.model.n_layers
    (deep,) = passes(spec, spec.model, work)
    walked = walk.through(passes(spec, walk.shallow, work)[0], Bytes())
    weights = deep[0].start.weights
    assert [stretch.name for stretch in walked] == [stretch.name for stretch in deep]
    for ours, theirs in zip(walked, deep, strict=True):
        aside = 8 * 2 * 2 * spec.model.n_layers * len(spec.model.slots)  # tallies, which a step keeps
        assert abs(ours.peak.total + weights - theirs.peak.total) <= aside + 4096, ours.name


def test_an_update_of_many_layers_is_that_of_few_grown():
    spec = spec_of("model.n_layers=20", "optimizer=lion")
    work = Work(2, 2, "cpu", "32-true")
    (few, _), (more, times) = ((update(spec, model, work), times) for model, times in Walk(spec.model).depths())
    assert times == 17
    assert few.grown(few, more, times) == update(spec, spec.model, work)
    assert few != update(spec, spec.model, work)


def test_nothing_is_drawn_or_kept():
    spec = spec_of(*CASES["dropout"])
    torch.manual_seed(0)
    before = torch.get_rng_state()
    passes(spec, spec.model, Work(2, 1, "cpu", "32-true"))
    assert torch.equal(torch.get_rng_state(), before)
    assert not isinstance(torch.empty(1), torch._subclasses.FakeTensor)


def test_a_real_run_takes_what_was_forecast(tmp_path):
    """Lightning's own loop, data, clipping, log lines and validation around the step: a tenth, as promised."""
    from builder.bench.memory import allocated
    from builder.memory import forecast
    from tests.tiny_run import spec_of as tiny
    from tests.tiny_run import trained

    words = ["model.d_model=64", "model.ffn.d_ff=256", "batch.sequences=64"]
    words += ["trainer.max_steps=2", "trainer.val_check_interval=2"]
    expected = forecast(tiny(tmp_path, *words)).peak.total
    assert allocated(lambda: trained(tmp_path, *words)) == pytest.approx(expected, rel=0.1)
