"""Capacity and overflow: the numbers of C16, and every placement against a loop over choices."""

import pytest
import torch

from builder.model.seats import Seats, capacity
from tests.components.router.loop import room, seated


@pytest.mark.parametrize(
    ("tokens", "experts", "k", "factor", "wanted"),
    [
        (8, 4, 1, 1.0, 2),  # C16
        (8, 4, 2, 1.0, 4),
        (1, 8, 1, 1.0, 1),
        (4, 2, 2, 4.0, 4),
        (10, 1, 1, 1.1, 10),
        (100, 10, 1, 1.1, 11),  # and not 12, because 1.1 * 10 is a little more in floating point
        (1000, 10, 2, 1.15, 230),
        (9, 4, 1, 1.0, 3),
        (8, 4, 1, 0.01, 1),
        (0, 4, 1, 1.0, 1),
        (100, 8, 2, 1e308, 100),
        (100, 8, 2, 1e-300, 1),
        (8, 4, 2, 1.2345678901234567, 5),
    ],
)
def test_the_capacity(tokens, experts, k, factor, wanted):
    assert capacity(tokens, k, experts, factor) == wanted
    real = torch.zeros(tokens, k, dtype=torch.int64)
    assert Seats(factor, "drop")._room(real, experts, k).tolist() == [min(wanted, tokens)] * experts


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.1, 1.25, 2.0])
def test_the_capacity_in_whole_numbers(factor):
    for tokens in range(1, 65):
        for k in (1, 2, 3):
            assert capacity(tokens, k, 6, factor) == room(tokens, k, 6, factor)


def placed(overflow, worth, k, factor, real=None):
    preferred = torch.as_tensor(worth)
    experts = preferred.topk(k, dim=-1).indices
    if real is not None:
        experts = torch.where(real[:, None], experts, preferred.shape[1])
    return Seats(factor, overflow).place(preferred, experts)


@pytest.mark.parametrize("padded", [False, True], ids=["", "padded"])
@pytest.mark.parametrize(("experts", "k"), [(4, 1), (4, 2), (5, 3), (3, 3)])
@pytest.mark.parametrize("factor", [0.25, 0.7, 1.0, 1.3])
@pytest.mark.parametrize("overflow", ["drop", "reroute", "expand"])
def test_equals_the_loop(overflow, factor, experts, k, padded):
    for seed in range(3):
        worth = torch.rand(13, experts, generator=torch.Generator().manual_seed(seed))
        worth[:, 0] += 0.5 * seed  # more and more want the first one
        real = torch.arange(13) % 3 > 0 if padded else torch.ones(13, dtype=torch.bool)
        placement = placed(overflow, worth, k, factor, real)
        rankings = [sorted(range(experts), key=lambda e, row=row: -row[e]) for row in worth[real].tolist()]
        going, over, dropped = seated(rankings, k, room(int(real.sum()), k, experts, factor), overflow)
        found = [[e if e < experts else None for e in row] for row in placement.experts[real].tolist()]
        assert found == [[*row, *[None] * (k - len(row))] for row in going]
        assert (placement.over, placement.dropped) == (over, dropped)
        assert (placement.experts[~real] == experts).all(), "padding goes nowhere"


def test_first_choices_go_before_second_ones():
    worth = [[0.6, 0.4], [0.6, 0.4], [0.4, 0.6], [0.4, 0.6]]  # both choices of all four; two seats each
    assert placed("drop", worth, 2, 0.5).experts.tolist() == [[0, 2], [0, 2], [1, 2], [1, 2]]


def test_equal_choices_go_in_the_order_of_the_tokens():
    assert placed("drop", [[0.9, 0.1]] * 4, 1, 1.0).experts.flatten().tolist() == [0, 0, 2, 2]
    assert placed("reroute", [[0.9, 0.1]] * 4, 1, 1.0).experts.flatten().tolist() == [0, 0, 1, 1]
    assert placed("expand", [[0.9, 0.1]] * 4, 1, 1.0).experts.flatten().tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("experts", [2, 4, 7])
def test_one_choice_always_finds_another_expert_when_there_are_seats_for_all(experts):
    worth = torch.rand(29, experts)
    worth[:, 1] += 1
    placement = placed("reroute", worth, 1, 1.0)
    assert placement.over > 0 and placement.dropped == 0 and (placement.experts < experts).all()


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.5])
def test_no_expert_is_met_twice_nor_holds_more_than_its_seats(factor):
    worth = torch.rand(23, 5)
    worth[:, :2] += 1
    for overflow in ("drop", "reroute"):
        found = placed(overflow, worth, 3, factor).experts
        assert all((found == e).sum() <= room(23, 3, 5, factor) for e in range(5))
        assert all(len(set(kept)) == len(kept) for kept in ([e for e in row if e < 5] for row in found.tolist()))


def test_an_expert_that_may_not_be_chosen_is_no_way_out():
    worth = torch.tensor([[0.9, 0.5, -torch.inf, -torch.inf]] * 6)
    placement = placed("reroute", worth, 1, 1.0)  # two seats each
    assert placement.experts.flatten().tolist() == [0, 0, 1, 1, 4, 4] and placement.dropped == 2 and placement.over == 4
