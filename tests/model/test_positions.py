"""Default positions against loops that count real tokens, and the memo of one pass."""

import torch

from builder.model.positions import Positions, count, count_real, count_within

REAL = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 1, 0, 1, 1]], dtype=torch.bool)


def before(real, start):
    """Per row, the number of real tokens before each real one; None where a pad stands."""
    rows = []
    for row, counted in zip(real.tolist(), start, strict=True):
        out = []
        for yes in row:
            out.append(counted if yes else None)
            counted += yes
        rows.append(out)
    return rows


def agree(ids, expected):
    return all(e is None or i == e for row, right in zip(ids.tolist(), expected, strict=True)
               for i, e in zip(row, right, strict=True))  # fmt: skip


def test_real_tokens_are_counted_and_pads_stay_in_the_table():
    assert agree(count_real(REAL), before(REAL, [0] * 4))
    assert not agree(count_real(REAL), before(REAL, [1] * 4))
    assert (count_real(REAL) >= 0).all() and (count_real(REAL) < 5).all()
    assert (count_real(REAL)[0] == torch.tensor([0, 0, 0, 1, 2])).all()


def test_counting_goes_on_from_what_was_counted():
    start = [3, 0, 2, 7]
    assert agree(count_real(REAL, torch.tensor(start)), before(REAL, start))
    first, rest = REAL.split((2, 3), dim=1)
    joined = torch.cat((count_real(first), count_real(rest, first.sum(1))), dim=1)
    assert agree(joined, before(REAL, [0] * 4))


def test_rows_without_padding_count_on_from_the_state():
    assert count(3, 4, torch.device("cpu")).tolist() == [[4, 5, 6]]


def within(segments, real):
    rows = []
    for names, row in zip(segments.tolist(), real.tolist(), strict=True):
        out, counted = [], 0
        for t, (name, yes) in enumerate(zip(names, row, strict=True)):
            counted = 0 if t and name != names[t - 1] else counted
            out.append(counted if yes else None)
            counted += yes
        rows.append(out)
    return rows


def test_positions_restart_with_each_document():
    segments = torch.tensor([[0, 0, 0, 0, 0], [3, 1, 1, 2, 2], [0, 0, 1, 1, 0], [5, 5, 5, 5, 6]])
    everything = torch.ones_like(segments, dtype=torch.bool)
    assert agree(count_within(segments), within(segments, everything))
    assert not agree(count_within(segments), within(segments.roll(1, 1), everything))


def test_pads_inside_a_document_are_not_counted():
    segments = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1], [7, 7, 7, 7, 7], [0, 0, 0, 1, 1]])
    assert agree(count_within(segments, REAL), within(segments, REAL))
    assert not agree(count_within(segments), within(segments, REAL))
    assert (count_within(segments, REAL) >= 0).all() and (count_within(segments, REAL) < 5).all()


def test_what_is_derived_is_made_once_a_key():
    positions, made = Positions(torch.zeros(1, 1)), []
    for key in ("a", "b", "a"):
        assert positions.once(key, lambda key=key: made.append(key) or key * 2) == key * 2
    assert made == ["a", "b"]
