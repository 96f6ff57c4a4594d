"""Axes to points: values as Hydra's grammar reads them, and every way in which axes can be put together."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from builder.errors import ArchlabError, ConfigError
from builder.load import read
from builder.sweeps.axes import as_words, points, said
from builder.sweeps.spec import SweepSpec

VALUES = [1, -2, 0.5, 1e-4, 2e-05, True, None, "gqa", "attention+ffn", "true", "1e3", "", "a b", "it's", "a,b", "[x]"]
VALUES += [
    "back\\slash",
    "end\\'",
    "${x}",
    [1, 2],
    ["a,b", None],
    {"name": "gqa", "n": [1, {"k": "v"}]},
    "C:/x.y",
    "null",
]


def never(point, key, value):
    raise AssertionError("no axis depends on another")


def made(words=(), holds=never, **spec):
    return [" ".join(as_words(point)) for point in points(words, read(SweepSpec, spec), holds)]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_is_read_as_it_was_meant(value):
    (override,) = OverridesParser.create().parse_overrides([f"key={said(value)}"])
    assert override.value() == value and type(override.value()) is type(value)
    assert not override.is_sweep_override()


def test_commas_of_the_command_line_make_a_product():
    assert made(["a=1,2", "b=x", "c=p,q"]) == [f"a={a} b=x c={c}" for a in (1, 2) for c in "pq"]
    assert made(["a=range(3)"]) == ["a=0", "a=1", "a=2"]
    assert made(["a=[1,2]"]) == ["a=[1,2]"]
    assert made([]) == [""]


def test_the_last_word_for_a_key_counts():
    assert made(["a=1", "b=2", "a=3,4"]) == ["a=3 b=2", "a=4 b=2"]
    assert made(["a=1"], product={"a": [5, 6]}) == ["a=5", "a=6"]


def test_product_of_a_file():
    assert made(["s=0,1"], product={"a": [1, 2], "model/ffn": ["glu"]}) == [
        f"s={s} a={a} model/ffn=glu" for s in (0, 1) for a in (1, 2)
    ]


def test_pairs_are_taken_together_and_multiply_with_the_rest():
    pairs = [{"a": [1, 2], "b": [10, 20]}, {"c": ["x", "y", "z"]}]
    assert made(["s=0"], paired=pairs) == [f"s=0 a={a} b={10 * a} c={c}" for a in (1, 2) for c in "xyz"]


def test_listed_points_stand_as_they_are():
    assert made(["s=0,1"], listed=[{"a": 1}, {"b": [1, 2], "c": None}]) == [
        *("s=0 a=1", "s=0 b=[1,2] c=null", "s=1 a=1", "s=1 b=[1,2] c=null"),
    ]


def test_conditional_axes_are_those_points_own_that_have_the_value():
    def holds(point, key, value):
        return dict(point).get(key) == str(value)

    rules = [{"when": {"a": 2}, "product": {"b": [1, 2]}}, {"when": {"b": 1, "a": 2}, "product": {"c": ["x", "y"]}}]
    assert made(["a=1,2,3"], holds, conditional=rules) == ["a=1", "a=2 b=1 c=x", "a=2 b=1 c=y", "a=2 b=2", "a=3"]


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"paired": [{"a": [1, 2], "b": [1]}]}, "paired.0"),
        ({"product": {"a": []}}, "product.a"),
        ({"product": {"a": 1}}, "product.a"),
        ({"conditional": [{"product": {"a": [1]}}]}, "conditional.0.when"),
        ({"conditional": [{"when": {"a": 1}, "product": {"b": []}}]}, "conditional.0.product.b"),
        ({"search": {"space": {"a": [1]}}, "product": {"b": [1]}}, "search"),
        ({"search": {"space": {"a": [1]}}, "dry": True}, "dry"),
        ({"search": {"space": {}}}, "search.space"),
        ({"invalid": "ignore"}, "invalid"),
        ({"dri": True}, "dri"),
    ],
)
def test_what_makes_no_axes_is_refused(spec, path):
    with pytest.raises(ConfigError) as refused:
        read(SweepSpec, spec)
    assert [problem.path for problem in refused.value.problems] == [path]


@pytest.mark.parametrize(("word", "text"), [("a=interval(0,1)", "sweep.search.space"), ("a=[", "a=[")])
def test_a_word_that_is_no_axis_is_refused(word, text):
    with pytest.raises(ArchlabError, match="a=") as refused:
        made([word])
    assert text in str(refused.value)
