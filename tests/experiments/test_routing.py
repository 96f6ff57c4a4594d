"""The table at the end of a training: a line a layer, and a plain sentence where nothing balanced and it shows."""

import io

import pytest
import torch
from rich.console import Console

from builder.experiments.load import Load, describe
from builder.experiments.routing import render
from tests.tiny_run import MOE, spec_of

OFF = "model.moe.balance=false"
UNEVEN, EVEN = [0, 6, 1, 1], [3, 3, 3, 3]


@pytest.fixture
def shown(tmp_path):
    """shown(counts by layer, *overrides): the text of the table."""

    def show(counts, *overrides) -> str:
        loads = {layer: Load.of(torch.tensor([*row, 2.0 * any(row), 1.0 * any(row)])) for layer, row in counts.items()}
        file = io.StringIO()
        Console(file=file, width=200).print(render(describe(loads), spec_of(tmp_path, *MOE, *overrides).model))
        return file.getvalue()

    return show


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_a_line_for_each_layer_and_one_for_all(shown):
    said = lines(shown({0: UNEVEN, 2: EVEN}))
    assert said[1] == ["layer", "max/mean", "entropy", "dropped", "dead"]
    assert ["0", "3.00", "0.531", "12.5%", "1"] in said
    assert ["2", "1.00", "1.000", "8.3%", "0"] in said
    assert ["all", "2", "3.00", "0.531", "10.4%", "1"] in said
    assert not any("all" in line for line in lines(shown({0: UNEVEN}))), "of one layer there is nothing to sum up"


def test_nothing_routed_is_a_dash(shown):
    said = lines(shown({0: EVEN, 2: [0, 0, 0, 0]}))
    assert ["2", "-", "-", "-", "0"] in said and ["all", "2", "-", "-", "-", "0"] in said


def test_a_deep_model_has_a_short_table(shown):
    assert len(lines(shown(dict.fromkeys(range(94), EVEN)))) < 25


def test_no_balance_is_told_of_where_it_shows(shown):
    said = shown({0: UNEVEN, 2: EVEN}, OFF)
    assert "the busiest expert of layer 0 got 3.00 times its even share, and 1 expert got nothing" in said
    both = shown({0: UNEVEN, 2: [0, 0, 0, 5]}, OFF)
    assert "of layer 2 got 4.00 times its even share, 2 layers stand at 1.5 or more, and 4 experts got nothing" in both


@pytest.mark.parametrize(
    ("counts", "overrides"),
    [({0: UNEVEN, 2: EVEN}, []), ({0: EVEN, 2: EVEN}, [OFF]), ({0: [0, 0, 0, 0], 2: EVEN}, [OFF])],
    ids=["balanced", "even by itself", "nothing routed"],
)
def test_and_nowhere_else(shown, counts, overrides):
    assert "balance is off" not in shown(counts, *overrides)
