"""Layers that a pattern repeats: written out, tiled as if they had been typed, and refused when they are misspelt."""

from collections.abc import Callable
from typing import Any

import pytest

from builder.errors import ConfigError
from builder.layers import written_out
from builder.load import load

Edit = Callable[[dict[str, Any]], dict[str, Any]]
Refused = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        (["2 * attention+ffn"], ["attention+ffn"] * 2),
        (["1*attention"], ["attention"]),
        (["  3  *  attention + ffn "], ["attention + ffn "] * 3),
        (["attention", "2 * attention+ffn", "attention"], ["attention", "attention+ffn", "attention+ffn", "attention"]),
        (["3 * attention+ffn", "58 * attention+moe"], ["attention+ffn"] * 3 + ["attention+moe"] * 58),  # DeepSeek-V3
        (["attention+ffn"], ["attention+ffn"]),
        ([], []),
    ],
    ids=str,
)
def test_a_repeat_is_written_out(pattern: list[str], wanted: list[str]):
    assert written_out(pattern) == wanted


def test_a_spec_holds_every_layer_and_says_what_it_would_without_the_shorthand(edited: Edit):
    short = load(edited({"model.pattern": ["2 * attention+ffn", "attention"], "model.n_layers": 6}))
    assert short.model.pattern == ("attention+ffn", "attention+ffn", "attention")
    assert [str(layer) for layer in short.model.layers] == list(short.model.pattern) * 2
    long = load(edited({"model.pattern": ["attention+ffn", "attention+ffn", "attention"], "model.n_layers": 6}))
    assert short == long and short.hash == long.hash
    assert load(short.to_dict()) == short


@pytest.mark.parametrize("times", ["0", "00"])
def test_a_layer_is_not_repeated_no_times(edited: Edit, refused: Refused, times: str):
    problem = refused(edited({"model.pattern": ["attention", f"{times} * attention+ffn"]}))["model.pattern"]
    assert "at least once" in problem.rule and problem.found == repr(f"{times} * attention+ffn")
    assert "model.pattern=[" in problem.fix


@pytest.mark.parametrize(
    "entry",
    ["-1 * attention+ffn", "2 x attention+ffn", "* attention", "2 *", "1.5 * attention", " * ", "2 * 3 * attention"],
)
def test_what_is_no_repeat_is_refused(edited: Edit, refused: Refused, entry: str):
    found = refused(edited({"model.pattern": [entry]}))
    assert list(found) == ["model.pattern"] and "slots: attention, ffn" in found["model.pattern"].rule
    if "*" in entry:  # and no slot to be defined
        written = found["model.pattern"].fix.removeprefix("model.pattern=[").removesuffix("]")
        assert load(edited({"model.pattern": [written]})).model.layers


@pytest.mark.parametrize("times", ["2049", "30000000", "9" * 5000], ids=len)
def test_a_slip_of_the_finger_is_no_repeat(edited: Edit, refused: Refused, times: str):
    assert len(written_out(["attention", "2047 * attention+ffn"])) == 2048
    problem = refused(edited({"model.pattern": ["attention", f"{times} * attention+ffn"]}))["model.pattern"]
    assert "2048 layers at most" in problem.rule and problem.fix == "model.pattern=[attention,attention+ffn]"


def test_an_undefined_slot_is_named_once_however_often_it_is_repeated(edited: Edit):
    with pytest.raises(ConfigError) as caught:
        load(edited({"model.pattern": ["9 * attention+moe"]}))
    (problem,) = caught.value.problems
    assert problem.found == "'attention+moe'" and "define model.moe={name: ...}" in problem.fix


def test_a_repeated_part_that_is_no_slot_is_told_as_one(edited: Edit, refused: Refused):
    for pattern in (["local+ffn"], ["2 * local+ffn"]):
        problem = refused(edited({"model.pattern": pattern, "model.local": "gqa"}))["model.local"]
        assert problem.fix == "model.local={name: gqa}"
