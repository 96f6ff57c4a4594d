"""A metric along a key: the lines, their points and order, and where they are drawn."""

import json

import pytest

from builder.compare.along import along
from builder.errors import ArchlabError
from tests.compare.synthetic import call, compared, write

ACCURACY = {"attention": {4: 1.0, 8: 0.98, 16: 0.97}, "short": {4: 0.9, 8: 0.5, 16: 0.25}}


@pytest.fixture
def runs(tmp_path):
    for name, found in ACCURACY.items():
        for layers, value in reversed(found.items()):
            for seed in (0, 1):
                more = {"val/accuracy": {100: value + seed / 100}}
                sides = {"seed": seed, "model__n_layers": layers, "data__packing": PACKING[name]}
                write(tmp_path / f"runs/{name}-{layers}-{seed}", more=more, **sides)
    return tmp_path / "runs"


PACKING = {"attention": "stream", "short": "documents"}


def test_there_is_a_line_for_each_setting_of_all_else(runs):
    found = along(compared(runs, rank="val/accuracy"), "model.n_layers")
    assert (found.path, found.metric, found.numeric) == ("model.n_layers", "val/accuracy", True)
    assert [line.label for line in found.lines] == ["stream", "documents"], "the best at the end comes first"
    for line, told in zip(found.lines, ACCURACY.values(), strict=True):
        assert [point.x for point in line.points] == [4, 8, 16]
        assert [point.mean.mean for point in line.points] == pytest.approx([value + 0.005 for value in told.values()])
        assert all(point.mean.n == 2 for point in line.points)


def test_where_less_is_better_the_lowest_comes_first(runs):
    found = along(compared(runs, rank="val/accuracy", goal="min"), "n_layers")
    assert [line.label for line in found.lines] == ["documents", "stream"]


def test_what_is_no_number_keeps_its_name(runs):
    found = along(compared(runs, rank="val/accuracy"), "data.packing")
    assert not found.numeric
    assert [line.label for line in found.lines] == ["4", "8", "16"]
    assert [[point.x for point in line.points] for line in found.lines] == [["documents", "stream"]] * 3


def test_a_key_that_follows_from_the_other_sets_no_line_apart(tmp_path):
    for layers in (2, 4):
        write(tmp_path / f"runs/{layers}", model__n_layers=layers, model__deploy_length=128 * layers)
    (line,) = along(compared(tmp_path / "runs"), "model.n_layers").lines
    assert line.label == "all" and [point.x for point in line.points] == [2, 4]


@pytest.mark.parametrize(
    ("path", "said"),
    [("model.n_layer", r"did you mean model\.n_layers"), ("seed", r"differ in model\.n_layers, data\.packing")],
)
def test_a_key_in_which_they_do_not_differ_is_refused(runs, path, said):
    with pytest.raises(ArchlabError, match=said):
        along(compared(runs), path)


def test_it_is_drawn_and_kept(runs, tmp_path):
    out = tmp_path / "out"
    words = ("rank=val/accuracy", "along=n_layers", "match=[]")
    assert call(f"runs={runs}", f"out={out}", *words) == 0
    (picture,) = out.glob("along.png")
    assert picture.stat().st_size > 1000
    kept = json.loads((out / "comparison.json").read_text())["along"]
    assert [line["label"] for line in kept["lines"]] == ["stream", "documents"]
    assert "val/accuracy along model.n_layers" in (out / "page.html").read_text()
    assert call(f"runs={runs}", f"out={tmp_path / 'plain'}", "match=[]") == 0
    assert not (tmp_path / "plain/along.png").exists()
