"""Every schedule against transformers' or its paper's, and what all of them have: the warm-up, the peak, the end."""

import math
from itertools import pairwise

import pytest
import torch
from transformers import optimization as theirs

from builder import registry
from builder.training.schedule import Schedule

SCHEDULES = registry.names("schedule")
RUNS = [(100, 10), (100, 0), (7, 3), (50, 49), (40, 20)]  # steps, of them warm-up


def schedule(name: str, steps: int, **knobs) -> Schedule:
    kind = registry.find("schedule", name)
    return kind(kind.Config(**knobs), steps)


def lambda_of(make, **knobs):
    """What one of transformers' schedules makes of a step."""
    return make(torch.optim.SGD([torch.zeros(1)], lr=1.0), **knobs).lr_lambdas[0]


def factors(of: Schedule, steps: int) -> list[float]:
    return [of.factor(step) for step in range(steps)]


# what all of them have


@pytest.mark.parametrize(("steps", "warmup"), RUNS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_it_rises_in_a_line_to_the_peak_and_never_again(name, steps, warmup):
    found = factors(schedule(name, steps, warmup_steps=warmup), steps + 5)
    assert found[:warmup] == pytest.approx([(step + 1) / (warmup + 1) for step in range(warmup)], abs=1e-12)
    assert found[warmup] == 1.0
    assert all(one >= other for one, other in zip(found[warmup:], found[warmup + 1 :], strict=False))
    assert all(factor > 0 for factor in found[:steps]), "a step of rate 0 is a step for nothing"


@pytest.mark.parametrize("steps", [1, 4, 9, 10])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_run_no_longer_than_its_warmup_only_rises(name, steps):
    found = factors(schedule(name, steps, warmup_steps=10), steps)
    assert found == pytest.approx([(step + 1) / 11 for step in range(steps)])


@pytest.mark.parametrize("name", SCHEDULES)
def test_without_warmup_it_starts_at_the_peak(name):
    for steps in (1, 10):
        assert schedule(name, steps, warmup_steps=0).factor(0) == 1.0


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_warmup_of_less_than_no_step_is_refused(name):
    with pytest.raises(ValueError, match="warmup_steps"):
        schedule(name, 10, warmup_steps=-1)


@pytest.mark.parametrize("knobs", [{}, {"floor": 1.0}], ids=str)
@pytest.mark.parametrize(("steps", "warmup"), [*RUNS, (5, 10), (11, 10), (12, 10)])
@pytest.mark.parametrize("name", SCHEDULES)
def test_it_says_whether_it_falls(name, steps, warmup, knobs):
    knobs = {
        knob: value for knob, value in knobs.items() if knob in registry.find("schedule", name).Config.model_fields
    }
    of = schedule(name, steps, warmup_steps=warmup, **knobs)
    found = factors(of, steps)
    assert of.falls == any(one > other for one, other in pairwise(found))


@pytest.mark.parametrize("name", SCHEDULES)
def test_it_scales_each_rate_from_its_own_peak(name):
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    groups = [{"params": [weight], "lr": lr} for weight, lr in zip(weights, (0.5, 0.03), strict=True)]
    optimizer, of = torch.optim.SGD(groups), schedule(name, 12, warmup_steps=3)
    moved = torch.optim.lr_scheduler.LambdaLR(optimizer, of.factor)
    for step in range(12):
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx(
            [0.5 * of.factor(step), 0.03 * of.factor(step)]
        )
        optimizer.step()
        moved.step()


# each of them: theirs rises from 0 at their step 0, so our step s of w + 1 and S + 1 is their step s + 1


@pytest.mark.parametrize(("steps", "warmup"), RUNS)
def test_linear_is_that_of_transformers(steps, warmup):
    make = theirs.get_linear_schedule_with_warmup
    wanted = lambda_of(make, num_warmup_steps=warmup + 1, num_training_steps=steps + 1)
    for step, found in enumerate(factors(schedule("linear", steps, warmup_steps=warmup), steps + 3)):
        assert found == pytest.approx(wanted(step + 1), abs=1e-12)


@pytest.mark.parametrize("floor", [0.0, 0.1, 1.0])
@pytest.mark.parametrize(("steps", "warmup"), RUNS)
def test_linear_goes_down_in_a_line_to_its_floor(steps, warmup, floor):
    of = schedule("linear", steps, warmup_steps=warmup, floor=floor)
    drops = [of.factor(step) - of.factor(step + 1) for step in range(warmup, steps)]
    assert drops == pytest.approx([(1 - floor) / (steps - warmup)] * len(drops), abs=1e-12)
    assert of.factor(steps) == of.factor(steps + 5) == pytest.approx(floor)


@pytest.mark.parametrize("floor", [0.1, 0.0, 1.0])
@pytest.mark.parametrize(("steps", "warmup"), RUNS)
def test_cosine_is_that_of_transformers(steps, warmup, floor):
    of = schedule("cosine", steps, warmup_steps=warmup, floor=floor)
    make = theirs.get_cosine_with_min_lr_schedule_with_warmup
    wanted = lambda_of(make, num_warmup_steps=warmup + 1, num_training_steps=steps + 1, min_lr_rate=floor)
    for step in range(warmup, steps + 1):
        assert of.factor(step) == pytest.approx(wanted(step + 1), abs=1e-12)
    assert of.factor(steps) == of.factor(steps + 5) == pytest.approx(floor)  # theirs would rise again


@pytest.mark.parametrize(("steps", "warmup"), RUNS)
def test_constant_is_that_of_transformers(steps, warmup):
    wanted = lambda_of(theirs.get_constant_schedule_with_warmup, num_warmup_steps=warmup + 1)
    for step, found in enumerate(factors(schedule("constant", steps, warmup_steps=warmup), steps + 3)):
        assert found == wanted(step + 1)


@pytest.mark.parametrize(("steps", "warmup"), RUNS)
def test_inverse_sqrt_is_that_of_transformers_and_of_the_paper(steps, warmup):
    found = factors(schedule("inverse_sqrt", steps, warmup_steps=warmup), steps + 300)
    width, their_warmup = 512, warmup + 1
    peak = width**-0.5 * their_warmup**-0.5
    wanted = lambda_of(theirs.get_inverse_sqrt_schedule, num_warmup_steps=their_warmup)
    for step, factor in enumerate(found):
        n = step + 1
        assert factor == pytest.approx(wanted(n), abs=1e-12)
        equation_3 = width**-0.5 * min(n**-0.5, n * their_warmup**-1.5)
        assert factor == pytest.approx(equation_3 / peak, abs=1e-12)


@pytest.mark.parametrize("floor", [0.0, 0.1])
@pytest.mark.parametrize(("form", "name"), [("linear", "linear"), ("cosine", "cosine"), ("sqrt", "1-sqrt")])
@pytest.mark.parametrize(("steps", "warmup", "share"), [(100, 10, 0.2), (100, 0, 0.1), (40, 20, 0.5), (50, 0, 1.0)])
def test_wsd_is_that_of_transformers(steps, warmup, share, form, name, floor):
    decay = round(share * steps)
    of = schedule("wsd", steps, warmup_steps=warmup, decay_share=share, form=form, floor=floor)
    stages = {"num_warmup_steps": warmup, "num_stable_steps": steps - warmup - decay, "num_decay_steps": decay}
    wanted = lambda_of(theirs.get_wsd_schedule, **stages, decay_type=name, min_lr_ratio=floor)
    for step in range(warmup, steps + 3):
        assert of.factor(step) == pytest.approx(wanted(step), abs=1e-12)


def test_wsd_is_the_same_until_it_decays_however_long_the_run():
    short, long = (factors(schedule("wsd", steps, warmup_steps=5), steps) for steps in (50, 200))
    assert short[:41] == long[:41] and short[5:41] == [1.0] * 36
    assert short[41] < 1.0 == long[41]


def test_wsd_by_default_is_the_root_over_a_fifth_of_the_run():
    """Hägele et al. (2024), section 3: f(n) = 1 - sqrt((n - (N - N_decay)) / N_decay)."""
    found = factors(schedule("wsd", 1000, warmup_steps=10), 1000)
    assert found[801:] == pytest.approx([1 - math.sqrt((n - 800) / 200) for n in range(801, 1000)], abs=1e-12)


def test_wsd_decays_over_what_its_warmup_leaves():
    found = factors(schedule("wsd", 20, warmup_steps=16, form="linear", decay_share=0.5), 21)
    assert found[16:] == pytest.approx([1.0, 0.75, 0.5, 0.25, 0.0])


@pytest.mark.parametrize("knobs", [{"decay_share": 0.0}, {"decay_share": 1.5}, {"form": "exponential"}, {"floor": 2.0}])
def test_wsd_refuses_what_is_no_decay(knobs):
    with pytest.raises(ValueError, match=next(iter(knobs))):
        schedule("wsd", 10, **knobs)
