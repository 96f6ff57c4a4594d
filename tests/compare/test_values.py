"""Best and last: what is no number never wins, a gap stays a gap, and every value knows its step."""

import math

import pytest

from builder.compare.run import Run, series
from builder.compare.values import Value, at, best, is_higher_better, last, value

ROWS = [
    {"step": 10, "tokens": 100, "flops": 1000, "val/loss": 3.0, "val/accuracy": 0.1},
    {"step": 20, "tokens": 200, "flops": 2000, "val/loss": 1.0, "val/accuracy": 0.5},
    {"step": 30, "tokens": 300, "flops": 3000, "val/loss": 2.0, "val/accuracy": 0.9},
]


def test_best_and_last_come_from_their_own_steps():
    found = series(ROWS)
    assert best(found["val/loss"], higher=False) == Value(1.0, 20)
    assert last(found["val/loss"]) == Value(2.0, 30)
    assert at(found["val/accuracy"], 20) == 0.5, "what it was where the loss was best, not its own best"
    assert best(found["val/accuracy"], higher=True) == Value(0.9, 30)


@pytest.mark.parametrize("nothing", [None, math.nan, math.inf, -math.inf, "NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_never_wins(nothing):
    found = series([{"step": 1, "x": nothing}, {"step": 2, "x": 5.0}, {"step": 3, "x": nothing}])["x"]
    assert best(found, higher=False) == best(found, higher=True) == Value(5.0, 2)
    assert math.isnan(last(found).value) and last(found).step == 3
    assert value(Run("", "", "completed", series={"x": found}), "x", "last", higher=False) is None
    assert value(Run("", "", "completed", series={"x": found}), "x", "best", higher=False) == Value(5.0, 2)


def test_a_run_of_no_numbers_has_no_best():
    assert best(series([{"step": 1, "x": None}])["x"], higher=False) is None


def test_a_missing_metric_is_a_gap_and_no_zero():
    found = series([{"step": 1, "x": 1.0}, {"step": 2, "y": 0.0}])
    assert at(found["y"], 1) is None
    assert best([], higher=False) is last([]) is None
    assert value(Run("", "", "completed", series=found), "z", "best", higher=False) is None


def test_the_first_of_equals_is_the_best():
    assert best(series([{"step": s, "x": 1.0} for s in (5, 10)])["x"], higher=False) == Value(1.0, 5)


def test_text_is_no_metric_and_rows_without_a_step_are_left_out():
    assert series([{"step": 1, "note": "hello", "done": True}, {"x": 2.0}, {"step": None, "x": 1.0}]) == {}


def test_points_stand_in_the_order_of_their_steps():
    assert [point.step for point in series([{"step": 2, "x": 0.0}, {"step": 1, "x": 1.0}])["x"]] == [1, 2]


@pytest.mark.parametrize(
    ("metric", "goal", "higher"),
    [
        ("val/loss", None, False),
        ("val/accuracy", None, True),
        ("perf/tokens_per_second", None, True),
        ("val/loss", "max", True),
        ("val/accuracy", "min", False),
        ("accuracy/loss", None, False),
    ],
)
def test_which_way_is_better(metric, goal, higher):
    assert is_higher_better(metric, goal) is higher
