"""The guard against a plain loop over what it saw, and what a skipped step leaves as it was."""

import io
import math

import pytest
import torch

from builder import build, registry
from builder.errors import ArchlabError
from builder.sections import GuardSpec
from builder.training.guard import Guard, Spike
from tests.tiny_run import MOE, same, spec_of

OPTIMIZERS = registry.names("optimizer")


def judged(guard, norm, loss=1.0, step=1):
    return guard.judge(torch.tensor(float(norm)), torch.tensor(float(loss)), step)


def drawn(count, seed=0):
    """Norms and losses, now and then one that is far too large or no number."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.empty(count, 2).log_normal_(0, 0.5, generator=generator)
    values[torch.rand(count, 2, generator=generator) < 0.1] *= 20
    values[torch.rand(count, 2, generator=generator) < 0.05] = math.nan
    return values


def middle(numbers):
    low, high = sorted(numbers)[(len(numbers) - 1) // 2], sorted(numbers)[len(numbers) // 2]
    return (low + high) / 2


@pytest.mark.parametrize("window", [1, 4, 15, 16, 17, 64])
@pytest.mark.parametrize(("grad_norm", "loss"), [(3.0, None), (None, 3.0), (3.0, 5.0), (None, None)])
def test_it_refuses_what_a_plain_loop_refuses(window, grad_norm, loss):
    guard = Guard(GuardSpec(grad_norm=grad_norm, loss=loss, window=window))
    past, refused, values = [], [], drawn(300)
    for step, row in enumerate(values):
        numbers = row.tolist()
        bad = not all(map(math.isfinite, numbers))
        if len(past) >= min(16, window):
            for ratio, number, seen in zip((grad_norm, loss), numbers, zip(*past[-window:], strict=True), strict=True):
                bad |= ratio is not None and number > ratio * middle(seen)
        past += [] if bad else [numbers]
        refused += [step] if bad else []
        assert (guard.judge(row[0], row[1], step) is not None) == bad, step
    finite = 300 - len({step for step in refused if not values[step].isfinite().all()})
    assert len(past) == finite if (grad_norm, loss) == (None, None) else 0 < len(past) < finite


@pytest.mark.parametrize("norm, loss", [(math.nan, 1), (math.inf, 1), (1, math.nan), (1, math.inf), (1, -math.inf)])
def test_what_is_no_number_is_refused_from_the_first_step_on_whatever_the_ratios(norm, loss):
    guard = Guard(GuardSpec(grad_norm=None, loss=None))
    reason = judged(guard, norm, loss, step=7)
    assert reason is not None and "in step 7" in reason
    assert ("gradient" in reason) == (loss == 1)
    assert judged(guard, 1e30, 1e30) is None


@pytest.mark.parametrize("window", [3, 40])
def test_a_ratio_is_judged_once_enough_was_accepted(window):
    needed = min(16, window)
    guard = Guard(GuardSpec(grad_norm=10, window=window))
    for _ in range(needed - 1):
        assert judged(guard, 1.0) is None
    assert judged(guard, 1e6) is None, "one more is needed"
    assert "above 10 times 1," in (judged(guard, 1e6) or "")
    assert judged(guard, 10.0) is None, "as much as the ratio allows is no spike"


def test_what_was_refused_is_not_remembered():
    guard = Guard(GuardSpec(grad_norm=2, window=4))
    for _ in range(4):
        judged(guard, 1.0)
    for _ in range(3):
        assert judged(guard, 3.0) and judged(guard, math.nan)
    assert judged(guard, 2.0) is None


def test_a_median_of_zero_refuses_nothing():
    guard = Guard(GuardSpec(grad_norm=2, loss=2, window=4))
    for _ in range(6):
        assert judged(guard, 0.0, 0.0) is None
    assert judged(guard, 1.0, 5.0) is None


def test_norm_and_loss_may_be_of_two_types():
    guard = Guard(GuardSpec())
    for loss in (torch.tensor(2.0, dtype=torch.bfloat16), torch.tensor(2.0, dtype=torch.float64, requires_grad=True)):
        assert guard.judge(torch.tensor(1.0), loss, 1) is None
    assert guard.state_dict()["loss"] == [2.0, 2.0]


# what happens then


def test_skipping_counts_and_stopping_says_what_to_do():
    skips, stops = Guard(GuardSpec()), Guard(GuardSpec(action="stop"))
    skips.refuse("the loss is nan in step 3")
    assert skips.skipped == 1
    with pytest.raises(Spike, match=r"guard: the loss is nan in step 3; .*optimizer\.lr.*guard\.action=skip"):
        stops.refuse("the loss is nan in step 3")
    assert issubclass(Spike, ArchlabError)


def test_a_whole_window_of_refused_steps_ends_a_run_that_skips():
    guard = Guard(GuardSpec(window=4))
    for _ in range(2):  # an accepted step in between begins again
        for _ in range(3):
            guard.refuse(judged(guard, math.nan) or "")
        assert judged(guard, 1.0) is None
    for _ in range(3):
        guard.refuse(judged(guard, math.nan) or "")
    with pytest.raises(Spike, match="4 steps in a row"):
        guard.refuse(judged(guard, math.nan) or "")
    assert guard.skipped == 10


# going on


def verdicts(guard, values):
    """What it says of each step; what it refuses is skipped."""
    said = [guard.judge(norm, loss, step) for step, (norm, loss) in enumerate(values.unbind())]
    for reason in said:
        if reason is not None:
            guard.skipped += 1
    return said


@pytest.mark.parametrize("cut", [1, 10, 16, 50, 130])
def test_it_goes_on_as_if_never_cut(cut):
    spec, values, file = GuardSpec(grad_norm=3, loss=3, window=32), drawn(200, seed=3), io.BytesIO()
    whole, first = Guard(spec), Guard(spec)
    verdicts(whole, values[:cut]), verdicts(first, values[:cut])
    wanted = verdicts(whole, values[cut:])
    torch.save(first.state_dict(), file)
    file.seek(0)
    second, blank = Guard(spec), Guard(spec)
    second.load_state_dict(torch.load(file, weights_only=True))
    assert verdicts(second, values[cut:]) == wanted
    assert same(second.state_dict(), whole.state_dict())
    assert verdicts(blank, values[cut:]) != wanted, "what it remembered is needed"


def test_a_row_of_refused_steps_is_remembered():
    first, second = Guard(GuardSpec(window=3)), Guard(GuardSpec(window=3))
    first.refuse("one"), first.refuse("two")
    second.load_state_dict(first.state_dict())
    with pytest.raises(Spike, match="3 steps in a row"):
        second.refuse("three")


# a skipped step: no gradient, and then the step of the optimizer


def held(model, optimizer):
    """Every tensor that training moves."""
    state = {key: value for key, value in optimizer.state_dict()["state"].items()}
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}, {
        (key, name): value.clone() for key, held in state.items() for name, value in held.items()
    }


def stepped(model, optimizer, scheduler, gradient):
    """One step, `gradient` saying what each parameter's is."""
    for parameter in model.parameters():
        parameter.grad = gradient(parameter)
    optimizer.step()
    scheduler.step()


@pytest.mark.parametrize("options", [[], MOE], ids=["dense", "moe"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_no_weight_and_no_moment_moves_in_a_skipped_step(tmp_path, name, options):
    model = build(spec_of(tmp_path, *options).model, seed=0)
    kind = registry.find("optimizer", name)
    optimizer = kind.build(kind.Config(), model)
    deployed = kind.deployed(optimizer) or dict
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    for _ in range(3):
        stepped(model, optimizer, scheduler, torch.randn_like)
    before, average, rate = held(model, optimizer), list(deployed().values()), scheduler.get_last_lr()
    stepped(model, optimizer, scheduler, lambda parameter: None)
    assert same(held(model, optimizer), before)
    assert same(list(deployed().values()), average)
    assert scheduler.last_epoch == 4 and scheduler.get_last_lr() != rate, "the schedule goes on"
    stepped(model, optimizer, scheduler, torch.zeros_like)
    assert not same(held(model, optimizer)[1], before[1]), "gradients of zero are no skipped step"
    stepped(model, optimizer, scheduler, lambda parameter: torch.full_like(parameter, math.nan))
    spoilt = [tensor for kept in held(model, optimizer) for tensor in kept.values() if not tensor.isfinite().all()]
    assert spoilt, "what the guard is for"
