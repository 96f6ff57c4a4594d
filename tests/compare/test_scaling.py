"""The law is found again where it holds, its interval holds it as often as it says, and without one none is made up."""

import random

import numpy as np
import pytest
from scipy.optimize import curve_fit

from builder.compare.scaling import Law, fit, law
from tests.compare.synthetic import compared, write

SIZES = [1e6, 2e6, 5e6, 1e7, 3e7, 1e8, 3e8]


def losses(noise=0.0, draw=None):
    return [1.69 + 406.4 / size**0.34 + (draw.gauss(0, noise) if draw else 0) for size in SIZES]


def test_a_law_without_noise_is_found_again():
    """With Chinchilla's numbers (Hoffmann et al. 2022)."""
    found = fit(SIZES, losses())
    assert (found.floor, found.scale, found.exponent) == pytest.approx((1.69, 406.4, 0.34), rel=1e-2)
    assert found.at(1e9) == pytest.approx(1.69 + 406.4 / 1e9**0.34, rel=1e-3)


def test_it_is_the_least_squares():
    y = losses(0.02, random.Random(3))
    found = fit(SIZES, y)
    start = (1.5, 300.0, 0.3)
    (floor, scale, exponent), _ = curve_fit(lambda n, e, a, b: e + a * (n / 1e6) ** -b, SIZES, y, p0=(1.5, 3.0, 0.3))
    assert start and (found.floor, found.exponent) == pytest.approx((floor, exponent), rel=2e-3)
    assert found.scale == pytest.approx(scale * 1e6**exponent, rel=2e-2)


def test_no_floor_lies_below_zero():
    """The best fit of all would have one there; with it at zero, a power law is a line of logarithms."""
    y = [400 / size**0.3 - 0.2 * (400 / size**0.3) ** 0.5 for size in SIZES]
    found = fit(SIZES, y)
    grid = np.linspace(0.2, 0.5, 3001)
    errors = []
    for exponent in grid:
        x = np.array(SIZES) ** -exponent
        errors.append(((np.array(y) - (x @ y) / (x @ x) * x) ** 2).sum())
    assert found.floor == 0 and found.exponent == pytest.approx(grid[int(np.argmin(errors))], rel=2e-3)
    free, _ = curve_fit(lambda n, e, a, b: e + a * (n / 1e6) ** -b, SIZES, y, p0=(0.1, 6.0, 0.3))
    assert free[0] < 0


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    draw = random.Random(0)
    held = [fit(SIZES, losses(0.02, draw), seed=n) for n in range(60)]
    inside = np.mean([one.exponent_interval[0] <= 0.34 <= one.exponent_interval[1] for one in held])
    assert 0.8 <= inside <= 1.0


def test_more_noise_makes_it_wider():
    width = [np.ptp(fit(SIZES, losses(noise, random.Random(1))).exponent_interval) for noise in (0.002, 0.02)]
    assert width[1] > 3 * width[0]


@pytest.mark.parametrize("values", [[2.0] * 7, [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6]])
def test_a_loss_that_does_not_fall_has_no_law(values):
    assert fit(SIZES, values) == "the loss doesn't fall with size"


def runs(tmp_path, params):
    for place, count in enumerate(params):
        write(tmp_path / str(place), [1 + 100 / count**0.5], costs={"params": count}, model__n_layers=place + 1)
    return compared(tmp_path, force=True)


@pytest.mark.parametrize(
    ("params", "said"),
    [([1e3, 2e3, 4e3], "found 3 sizes"), ([1000, 1100, 1200, 1300], "1,000 to 1,300"), ([1000] * 5, "found 1 sizes")],
)
def test_sizes_too_few_or_too_alike_carry_no_law(params, said, tmp_path):
    assert said in law(runs(tmp_path, params))


def test_the_law_of_a_sweep(tmp_path):
    found = law(runs(tmp_path, [1000, 2000, 4000, 8000, 16000]))
    assert isinstance(found, Law) and found.exponent == pytest.approx(0.5, rel=1e-2) and found.note == ""


def test_a_law_over_unlike_data_says_so(tmp_path):
    write(tmp_path / "other", [1.5], costs={"params": 9000}, corpus="d" * 64, model__n_layers=9)
    found = law(runs(tmp_path, [1000, 2000, 4000, 8000, 16000]))
    assert isinstance(found, Law) and "data aren't matched" in found.note


def test_of_what_should_be_high_there_is_none(tmp_path):
    runs(tmp_path, [1000, 2000, 4000, 8000])
    assert "more is better" in law(compared(tmp_path, goal="max"))
