"""Ratios of times: the median and its interval by hand, and what may be claimed of them."""

import pytest

from builder.bench import turns
from builder.bench.ratio import Ratio, compare
from builder.bench.turns import in_turns

ONES = [1.0] * 10


def test_the_median_of_ratios_is_taken_round_by_round():
    assert compare([2.0, 30.0, 400.0], [1.0, 10.0, 100.0]).median == 3.0  # 2, 3, 4: drift hits both alike


@pytest.mark.parametrize(
    ("n", "low", "high"),
    [(6, 1, 6), (7, 1, 7), (8, 1, 8), (9, 2, 8), (10, 2, 9)],  # the table of the sign test at 95 percent
)
def test_the_interval_is_that_of_the_sign_test(n: int, low: int, high: int):
    ratio = compare([float(value) for value in range(n, 0, -1)], ONES[:n])
    assert (ratio.low, ratio.high, ratio.sure) == (low, high, True)


def test_five_rounds_are_too_few_to_claim_anything():
    few, enough = compare([0.5] * 5, ONES[:5]), compare([0.5] * 6, ONES[:6])
    assert (few.sure, few.verdict) == (False, "level")
    assert (enough.sure, enough.verdict) == (True, "faster")


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.8, 0.99, "faster"), (0.8, 1.0, "level"), (0.8, 1.2, "level"), (1.0, 1.2, "level"), (1.01, 1.2, "slower")],
)
def test_nothing_is_claimed_where_the_interval_holds_one(low: float, high: float, verdict: str):
    assert Ratio((low + high) / 2, low, high, sure=True).verdict == verdict


def test_rows_of_different_rounds_are_refused():
    with pytest.raises(ValueError):
        compare([1.0, 2.0], [1.0])


def test_measurements_alternate_and_repeat_alike(monkeypatch: pytest.MonkeyPatch):
    calls: list[str] = []
    took = {"a": 0.01, "b": 0.05}
    clock = [0.0]
    monkeypatch.setattr(turns.time, "perf_counter", lambda: clock[0])

    def measure(name: str):
        def work() -> float:
            calls.append(name)
            clock[0] += took[name]  # what passes by; a tenth of it is what counts, as of one token of ten
            return took[name] / 10

        return work

    told: list[None] = []
    samples = in_turns(
        {name: measure(name) for name in took}, rounds=2, warmup=1, seconds=0.1, each=lambda: told.append(None)
    )
    assert "".join(calls) == "ab" + "aabb" + "bbaa"  # two repeats: 0.1 s of the slower one
    assert samples.repeats == 2
    assert samples.seconds["a"] == pytest.approx([0.001, 0.001])
    assert samples.seconds["b"] == pytest.approx([0.005, 0.005])
    assert len(told) == 6
    once = in_turns({"a": measure("a")}, rounds=1, warmup=1, seconds=1e-9, each=lambda: None)
    assert once.repeats == 1
