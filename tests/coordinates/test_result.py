"""Slopes of known powers of the width, and what is said of each."""

import io
import math

import pytest
import torch

from builder.coordinates import Coordinates, draw, table
from builder.coordinates.trace import Quantity
from builder.finding import Status

WIDTHS = (64, 128, 512)
STREAM, LOGITS = Quantity("stream", 0), Quantity("logits")


def power(*exponents):
    """3 w^e of two seeds, after as many steps as there are exponents, (W, N, S + 1)."""
    width = torch.tensor(WIDTHS, dtype=torch.float64)[:, None, None]
    factor = torch.tensor([2.0, 4.0], dtype=torch.float64)[None, :, None]  # 3 in the mean
    return factor * width ** torch.tensor(exponents, dtype=torch.float64)


def found(sizes, moves, quantity=STREAM):
    (verdict,) = Coordinates(WIDTHS, {quantity: power(*sizes)}, {quantity: power(*moves)}).verdicts
    return verdict


def test_slopes_are_the_exponents():
    verdict = found((0.0, 0.5, -0.25), (0.0, 1.0, 0.1))
    assert verdict.sizes == pytest.approx((0.0, 0.5, -0.25), abs=1e-12)
    assert verdict.moves == pytest.approx((1.0, 0.1), abs=1e-12)  # before a step nothing has moved


@pytest.mark.parametrize(
    ("sizes", "moves", "status", "why"),
    [
        ((0.0, 0.2), (0.0, 0.2), Status.PASS, ""),
        ((0.0, 0.3), (0.0, 0.0), Status.FAIL, "grows with width, after 1 step the most"),
        ((0.5, 0.0, 0.0), (0.0, 0.0, 0.0), Status.FAIL, "grows with width, after 0 steps the most"),
        ((0.0, 0.0, 0.0), (0.0, 0.3, 0.4), Status.FAIL, "moves more the wider it is, after 2 steps the most"),
        ((0.0, 0.0, 0.0), (0.0, -0.5, -0.2), Status.PASS, ""),
        ((0.0, 0.0), (0.0, -0.5), Status.WARN, "moves less the wider it is: a rate falls too fast"),
        ((-0.5, -0.5), (0.0, 0.0), Status.PASS, ""),
    ],
)
def test_verdicts(sizes, moves, status, why):
    verdict = found(sizes, moves)
    assert (verdict.status, verdict.why) == (status, why)


def test_logits_may_move_less_at_first():
    assert found((-0.5, -0.4), (0.0, -0.4), LOGITS).status is Status.PASS
    assert found((0.0, 0.4), (0.0, 0.4), LOGITS).status is Status.FAIL


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_width_that_breaks_is_named(bad):
    sizes = power(0.0, 0.0)
    sizes[1, 0, 1] = bad
    result = Coordinates(WIDTHS, {STREAM: sizes}, {STREAM: power(0.0, 0.0)})
    (verdict,) = result.verdicts
    assert verdict.status is Status.FAIL and verdict.why == "no number at width 128"
    assert result.to_dict()["quantities"][0]["sizes"] == [pytest.approx(0.0, abs=1e-12), None]  # JSON knows no NaN
    draw(result, "Coordinates", io.BytesIO())  # which leaves the point out


def test_what_is_zero_at_every_width_does_not_grow():
    nothing = torch.zeros(3, 2, 2, dtype=torch.float64)
    (verdict,) = Coordinates(WIDTHS, {STREAM: nothing}, {STREAM: nothing}).verdicts
    assert verdict.status is Status.PASS and verdict.sizes == pytest.approx((0.0, 0.0))


def test_of_each_kind_the_worst_layer_is_shown(capsys):
    from rich.console import Console

    layers = {Quantity("ffn", 0): (0.0, 0.1), Quantity("ffn", 1): (0.0, 0.4), Quantity("ffn", 2): (0.0, 0.3)}
    sizes = {quantity: power(*exponents) for quantity, exponents in layers.items()} | {LOGITS: power(0.0, 0.2)}
    result = Coordinates(WIDTHS, sizes, {quantity: power(0.0, 0.0) for quantity in sizes})
    assert [verdict.quantity for verdict in result.steepest] == [Quantity("ffn", 1), LOGITS]
    assert [verdict.quantity.layer for verdict in result.failures] == [1, 2]
    Console(width=80).print(table(result, "Coordinates"))
    out = capsys.readouterr().out
    assert "FAIL  ffn, layer 1  0.00  0.40   0.00" in out and "PASS  logits" in out
    assert "ffn, layer 1: grows with width, after 1 step the most" in out
    assert "widths 64, 128, 512, mean of 2 seeds" in out
    said = result.to_dict()
    assert said["ok"] is False and len(said["quantities"]) == 4
