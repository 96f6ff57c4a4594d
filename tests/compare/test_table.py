"""Numbers as the tables write them."""

import pytest

from builder.compare.table import count


@pytest.mark.parametrize(
    ("value", "said"),
    [(999, "999"), (999_808, "1M"), (999_499, "999k"), (1_000_320, "1M"), (4.16e12, "4.16T"), (0, "0"), (None, "")],
)
def test_a_count_has_the_unit_that_its_digits_need(value, said):
    assert count(value) == said
