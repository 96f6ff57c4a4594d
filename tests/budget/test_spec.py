"""What a budget may say, and how amounts are written."""

import pytest
from pydantic import ValidationError

from builder.budget import BudgetSpec

GIVEN = {"name": "params", "target": 1000, "solve": "model.ffn.d_ff"}


@pytest.mark.parametrize(
    ("written", "number"),
    [
        (10, 10),
        (2e9, 2_000_000_000),
        ("10M", 10_000_000),
        ("1.5B", 1_500_000_000),
        ("1.5G", 1_500_000_000),
        ("500k", 500_000),
        ("500K", 500_000),
        ("2e9", 2_000_000_000),
        ("2E+9", 2_000_000_000),
        ("1.2T", 1_200_000_000_000),
        ("1_000_000", 1_000_000),
        ("64MiB", 64 * 1024**2),
        ("10 M", 10_000_000),
        ("0.3M", 300_000),  # which is 299,999.99 in floating point when it is cut off
    ],
)
def test_an_amount_is_read(written, number):
    assert BudgetSpec.model_validate(GIVEN | {"target": written}).target == number


@pytest.mark.parametrize("written", [0, -1, "-1M", 0.5, "1.5", "M", "", "10X", "1,000", True, None, float("nan"), []])
def test_what_is_no_amount_is_refused(written):
    with pytest.raises(ValidationError, match=r"10M, 1\.5B"):
        BudgetSpec.model_validate(GIVEN | {"target": written})


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "parameters"},
        {"solve": "ffn.d_ff"},
        {"solve": "model"},
        {"solve": []},
        {"solve": 3},
        {"solve": ["model.ffn.d_ff", "ffn.d_ff"]},
        {"solve": ["model.ffn.d_ff", "model.ffn.d_ff"]},
        {"solve": "model.ffn.d_ff=3"},
        {"tolerance": 0.0},
        {"tolerance": 1.0},
        {"solved": 0},
        {"target_": 3},
    ],
)
def test_other_faults_are_refused(wrong):
    BudgetSpec.model_validate(GIVEN)
    with pytest.raises(ValidationError):
        BudgetSpec.model_validate(GIVEN | wrong)


def test_near_enough_is_a_share_of_the_target():
    budget = BudgetSpec.model_validate(GIVEN)
    assert [budget.met(cost) for cost in (989, 990, 1000, 1010, 1011)] == [False, True, True, True, False]
    assert budget.off(1100) == pytest.approx(0.1) and budget.off(900) == pytest.approx(-0.1)
