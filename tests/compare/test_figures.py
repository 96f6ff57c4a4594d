"""The figures as pictures: read back, they hold the colours of their lines where the lines must be."""

from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from builder.compare import figures, pareto, scaling
from builder.compare.colours import colours
from builder.compare.curves import POINTS, lines, window
from tests.compare.synthetic import compared, write

ROW, BARE = SimpleNamespace(shows=True), SimpleNamespace(shows=False)


def drawn(root, out, **knobs):
    found = compared(root, **knobs)
    return {
        path.name: imread(path)[..., :3]
        for path in figures.write(found, pareto.planes(found, None), scaling.law(found), out)
    }


def holds(picture, colour, least=20):
    return int((np.abs(picture - np.array(to_rgb(colour))) < 0.02).all(-1).sum()) >= least


@pytest.fixture
def runs(tmp_path):
    for layers in (1, 2, 4, 8):
        for seed in (0, 1):
            loss = {step: 1 + 100 / (1000 * layers) ** 0.5 + 1 / step + seed / 100 for step in range(5, 101, 5)}
            write(
                tmp_path / f"runs/{layers}-{seed}",
                loss,
                seed=seed,
                costs={"params": 1000 * layers},
                model__n_layers=layers,
            )
    return tmp_path / "runs"


def test_all_three_are_drawn(runs, tmp_path):
    made = drawn(runs, tmp_path / "out", force=True)
    assert set(made) == {"curves.png", "pareto.png", "scaling.png"}
    for name in ("curves.png", "pareto.png"):
        thirds = np.array_split(made[name][:450], 3, axis=1)  # steps, tokens, FLOPs; three costs
        assert all(holds(third, colours([ROW] * 4)[0]) for third in thirds), name
    assert all(holds(made["curves.png"], tint) for tint in colours([ROW] * 4))
    assert not holds(made["curves.png"], "#ff00ff"), "no colour is everywhere"


def test_what_has_no_numbers_makes_no_figure(tmp_path):
    write(tmp_path / "runs/a", {}, status="failed")
    assert drawn(tmp_path / "runs", tmp_path / "out") == {}


def test_a_line_is_the_mean_over_seeds_where_all_have_a_number(tmp_path):
    write(tmp_path / "a", {10: 4.0, 20: 2.0, 30: None}, seed=0)
    write(tmp_path / "b", {20: 3.0, 30: 1.0}, seed=1)
    (line,) = lines(compared(tmp_path), "tokens")
    assert (line.x, line.y, line.low, line.high, line.seeds) == ([20 * 1024], [2.5], [2.0], [3.0], 2)


def test_a_long_line_keeps_its_ends_and_its_best(tmp_path):
    loss = {step: 3.0 for step in range(1, 3001)} | {1234: 1.0}
    write(tmp_path / "a", loss, trainer__max_steps=3000)
    (line,) = lines(compared(tmp_path), "step")
    assert len(line.x) <= POINTS + 1 and (line.x[0], line.x[-1]) == (1, 3000)
    assert line.y[line.x.index(1234)] == 1.0


def test_a_first_value_far_above_all_others_does_not_flatten_them(tmp_path):
    write(tmp_path / "a", {step: 100.0 if step == 1 else 2.0 - step / 100 for step in range(1, 41)})
    low, high = window(lines(compared(tmp_path), "step"))
    assert low < 1.6 and 1.9 < high < 3


def test_many_configurations_have_colours_of_their_own():
    assert len(set(colours([ROW] * 60))) == 60 and len(set(colours([ROW] * 10))) == 10
    assert colours([BARE, ROW])[1] == colours([ROW])[0] != colours([BARE])[0]
