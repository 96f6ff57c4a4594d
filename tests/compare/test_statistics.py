"""Means, intervals and tests against scipy.stats and worked examples."""

import math
import random

import numpy as np
import pytest
from scipy import stats

from builder.compare.statistics import holm, mean, pairs

ONE, TWO = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9], [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8]
APART = [40.0, 41.0, 42.5]


def test_the_mean_and_its_interval_are_students():
    found = mean(ONE)
    low, high = stats.t.interval(0.95, len(ONE) - 1, loc=np.mean(ONE), scale=stats.sem(ONE))
    assert (found.mean, found.low, found.high, found.n) == pytest.approx((np.mean(ONE), low, high, 6))


def test_one_seed_has_a_mean_and_no_interval():
    found = mean([2.0])
    assert (found.mean, found.low, found.high, found.half, found.n) == (2.0, None, None, None, 1)
    assert mean([]) is None


def test_the_interval_holds_the_truth_as_often_as_it_says():
    draw = random.Random(0)
    held = 0
    for _ in range(2000):
        found = mean([draw.gauss(5, 2) for _ in range(3)])
        held += found.low <= 5 <= found.high
    assert held / 2000 == pytest.approx(0.95, abs=3 * math.sqrt(0.95 * 0.05 / 2000))


def test_pairs_are_welchs():
    found = pairs([ONE, TWO, APART])
    assert [(pair.first, pair.second) for pair in found] == [(0, 1), (0, 2), (1, 2)]
    for pair in found:
        one, other = [ONE, TWO, APART][pair.first], [ONE, TWO, APART][pair.second]
        oracle = stats.ttest_ind(one, other, equal_var=False)
        interval = oracle.confidence_interval(0.95)
        assert pair.p == pytest.approx(oracle.pvalue)
        assert (pair.low, pair.high) == pytest.approx((interval.low, interval.high))
        assert pair.difference == pytest.approx(np.mean(one) - np.mean(other))
    assert [pair.differs for pair in found] == [False, True, True]


def test_holm_is_as_in_a_worked_example():
    """p = .01, .04, .03, .005 of four: sorted .005 x 4, .01 x 3, .03 x 2, then .04, no less than the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    assert len(holm([])) == 0


def test_without_a_difference_few_are_found_however_many_are_asked():
    """Of 100 families of 15 pairs without any difference, about 5 may have one that is called so; uncorrected, most."""
    draw = random.Random(1)
    wrong = uncorrected = 0
    for _ in range(100):
        found = pairs([[draw.gauss(0, 1) for _ in range(5)] for _ in range(6)])
        wrong += any(pair.differs for pair in found)
        uncorrected += any(pair.p < 0.05 for pair in found)
    assert wrong <= 12 < 25 < uncorrected


def test_what_has_no_spread_or_one_value_is_not_tested():
    assert pairs([[1.0], [2.0, 3.0]]) == []
    assert pairs([[1.0, 1.0], [2.0, 2.0]]) == []
    assert [(pair.first, pair.second) for pair in pairs([ONE, [], TWO, [1.0]])] == [(0, 2)]


def test_pairs_that_may_not_be_compared_are_neither_tested_nor_counted():
    found = pairs([ONE, TWO, APART], fair=lambda one, other: (one, other) == (0, 1))
    assert [(pair.first, pair.second) for pair in found] == [(0, 1)]
    assert found[0].adjusted == found[0].p, "one test needs no correction"
    assert [(pair.first, pair.second) for pair in pairs([ONE, TWO, APART], [True, False, True])] == [(0, 2)]
