"""Tests that take turns: each runs once in n days, and all of them where few are asked for."""

import pytest

from tests.conftest import have_their_turn


@pytest.mark.parametrize(("count", "n"), [(7, 3), (3, 3), (4, 2)])
def test_each_has_its_turn_once_in_n_days(count: int, n: int):
    days = [have_their_turn(count, n, day) for day in range(5, 5 + n)]
    assert [sum(runs) for runs in zip(*days, strict=True)] == [1] * count
    assert all(map(any, days))


def test_few_of_them_were_asked_for():
    assert have_their_turn(2, 3, 0) == [True, True]
