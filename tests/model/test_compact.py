"""Real tokens moved together and back: against the same done row by row with Python lists."""

import pytest
import torch

from builder.model.compact import compact
from builder.model.context import Aux, Context
from builder.model.mask import Mask
from builder.model.positions import Positions, count

T = 6
REAL = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 0, 0, 1, 0], [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]]).bool()
SEGMENTS = torch.tensor([[5, 5, 5, 0, 0, 0], [1, 1, 2, 2, 2, 3], [0, 0, 1, 2, 2, 2], [0, 0, 0, 0, 0, 0]])


def context(**told):
    positions = Positions(count(T, 0, torch.device("cpu")))
    return Context(positions, positions, Mask(**told), None, Aux())


def numbered(*trailing):
    x = torch.arange(1.0, 1 + len(REAL) * T).view(len(REAL), T)
    return x.reshape(*x.shape, *(1 for _ in trailing)).expand(-1, -1, *trailing).clone()


@pytest.mark.parametrize("trailing", [(), (3,), (2, 3)], ids=str)
def test_real_tokens_come_first_and_go_back(trailing):
    row, x = compact(context(real=REAL), T), numbered(*trailing)
    moved, back = row.gather(x), row.scatter(row.gather(x))
    for b, real in enumerate(REAL):
        wanted = x[b][real]
        assert torch.equal(moved[b, : len(wanted)], wanted)
        assert row.real[b].tolist() == [t < len(wanted) for t in range(T)]
        assert torch.equal(back[b][real], wanted)
        assert not back[b][~real].any()


def test_without_padding_nothing_is_moved():
    row, x = compact(context(), T), numbered(2)
    assert row.order is None and row.real is None and row.starts is None
    assert row.gather(x) is x
    assert row.scatter(x) is x


def test_padding_gets_no_gradient_and_no_number_that_is_none():
    row, x = compact(context(real=REAL), T), numbered(2).requires_grad_()
    y = row.gather(x)
    y = torch.where(row.real[..., None], y, torch.nan)
    row.scatter(y).sum().backward()
    assert row.scatter(y).isfinite().all()
    assert torch.equal(x.grad, REAL[..., None].expand(-1, -1, 2).float())


@pytest.mark.parametrize("real", [None, REAL], ids=["whole", "padded"])
@pytest.mark.parametrize("kept", [0, 1, 3, 8])
def test_the_last_real_tokens_are_kept(real, kept):
    row, x = compact(context(real=real), T), numbered(2)
    before = -numbered(2)[:, :1].expand(-1, kept, -1)
    ends = row.ends(row.gather(x), before)
    for b in range(len(x)):
        together = torch.cat((before[b], x[b] if real is None else x[b][real[b]]))
        assert torch.equal(ends[b], together[len(together) - kept :])


@pytest.mark.parametrize("real", [None, REAL], ids=["whole", "padded"])
def test_documents_begin_where_their_number_changes(real):
    row = compact(context(real=real, segments=SEGMENTS), T)
    for b in range(len(SEGMENTS)):
        numbers = SEGMENTS[b] if real is None else SEGMENTS[b][real[b]]
        wanted = [t == 0 or bool(numbers[t] != numbers[t - 1]) for t in range(len(numbers))]
        assert row.starts[b, : len(numbers)].tolist() == wanted


def test_with_a_state_only_the_tokens_of_this_pass_count():
    row = compact(context(real=torch.cat((REAL[:, :2], REAL), 1), past=2), T)
    assert torch.equal(row.real, compact(context(real=REAL), T).real)


def test_layers_of_a_pass_share_what_is_made_and_other_masks_do_not():
    ctx = context(real=REAL)
    assert compact(ctx, T) is compact(ctx, T)
    other = Context(ctx.positions, ctx.positions, Mask(real=~REAL), None, Aux())
    assert not torch.equal(compact(other, T).real, compact(ctx, T).real)
