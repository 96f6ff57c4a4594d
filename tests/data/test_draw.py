"""Random numbers by key: the published generator, each distribution, and rows that don't hang on their neighbours."""

import numpy
import pytest
import torch

from builder.data.draw import Draw, keys_of

ROWS = 40_000


def draw(*keys):
    return Draw(numpy.array(keys, dtype=numpy.uint64))


def many():
    return Draw(keys_of("a test", torch.arange(ROWS)).numpy().view(numpy.uint64))


def test_the_published_sequence():
    """SplitMix64 with seed 1234567, as printed in the test vectors of its implementations."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    found = draw(1234567)
    assert [*found.bits(2)[0].tolist(), *found.bits(1)[0].tolist()] == expected


def test_a_row_draws_the_same_whatever_stands_beside_it():
    def drawn(made):
        return torch.cat([made.distinct(1000, 30), made.below(7, 3), made.distinct(9, 4), made.below(100, 2)], 1)

    together = drawn(draw(*range(50)))
    assert all(torch.equal(drawn(draw(key))[0], together[key]) for key in (0, 17, 49))
    assert len({tuple(row) for row in together.tolist()}) == 50


def test_keys_differ_by_name_and_number():
    keys = [key for name in "ab" for key in keys_of(name, torch.arange(1000)).tolist()]
    assert len(set(keys)) == 2000 and min(keys) < 0 < max(keys)


def assert_close(found, expected):
    """Within five standard deviations of a count."""
    expected = torch.as_tensor(expected, dtype=torch.float64)
    deviation = (expected * (1 - expected) / ROWS).sqrt()
    assert ((found.double() - expected).abs() <= 5 * deviation).all()


def test_whole_numbers_are_alike():
    assert_close(torch.bincount(many().below(7, 1).flatten(), minlength=7) / ROWS, [1 / 7] * 7)


@pytest.mark.parametrize("limit", [5, 20])  # by waiting times, and by drawing again what stands there twice
def test_distinct_numbers_are_in_any_order_alike(limit):
    found = many().distinct(limit, 2)
    assert (found[:, 0] != found[:, 1]).all()
    counts = torch.bincount(found[:, 0] * limit + found[:, 1], minlength=limit**2).view(limit, limit) / ROWS
    assert_close(counts, (1 - torch.eye(limit)) / (limit * (limit - 1)))


def test_weighted_numbers_come_as_from_an_urn():
    weights = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    found = many().weighted(weights, 2)
    counts = torch.bincount(found[:, 0] * 3 + found[:, 1], minlength=9).view(3, 3) / ROWS
    urn = [[0 if i == j else w / 8 * v / (8 - w) for j, v in enumerate([1, 2, 5])] for i, w in enumerate([1, 2, 5])]
    assert_close(counts, urn)
