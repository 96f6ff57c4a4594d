"""The load of experts: every figure as a loop over the counts has it, and few keys however large the model."""

import json
import math
from itertools import pairwise

import pytest
import torch

from builder.experiments.load import SHOWN_LAYERS, Load, describe, metrics, over_all, some_of


def by_hand(counts, over, dropped):
    """The figures of one layer, by a loop over what was counted."""
    total = sum(counts)
    shares = [count / total for count in counts]
    return {
        "max_over_mean": max(counts) / (total / len(counts)),
        "entropy": -sum(share * math.log(share) for share in shares if share) / math.log(len(counts)),
        "dropped": dropped / total,
        "overflow": over / total,
        "dead": sum(count == 0 for count in counts),
    }


def tally(counts, over=0, dropped=0):
    return torch.tensor([*counts, over, dropped], dtype=torch.float64)


COUNTS = [([3, 1, 4, 1, 5, 9, 2, 6], 5, 2), ([0, 7, 0, 13], 4, 0), ([1, 1], 0, 0), ([2**24, 1, 0], 1, 1)]


@pytest.mark.parametrize("counted", COUNTS)
def test_figures_are_those_of_a_loop(counted):
    load = Load.of(tally(*counted))
    assert load.figures == pytest.approx(by_hand(*counted))
    assert load.fractions.sum() == pytest.approx(1)
    counts, over, dropped = counted
    other = Load.of(tally([counts[0] + 1, *counts[1:]], over, dropped))
    assert other.figures != load.figures, "one choice more is seen"


def test_the_ends_of_the_scale():
    even, one = Load.of(tally([5] * 8)), Load.of(tally([0] * 7 + [5]))
    assert (even.max_over_mean, even.entropy, even.dead) == (1, pytest.approx(1), 0)
    assert (one.max_over_mean, one.entropy, one.dead) == (8, 0, 7)
    assert math.copysign(1, one.entropy) == 1, "no minus before a zero"
    assert Load.of(tally([9])).figures == by_hand([9, 9], 0, 0), "one expert alone has its share"


def test_nothing_routed_is_no_number():
    loads = {0: Load.of(tally([1, 2])), 3: Load.of(tally([0, 0]))}
    assert all(math.isnan(loads[3].figures[name]) for name in ("max_over_mean", "entropy", "dropped", "overflow"))
    assert math.isnan(over_all(loads.values())["max_over_mean"]) and math.isnan(over_all(loads.values())["entropy"])
    said = json.loads(json.dumps(describe(loads)), parse_constant=pytest.fail)
    assert said["layers"]["3"] == {"max_over_mean": None, "entropy": None, "dropped": None, "overflow": None, "dead": 0}
    assert describe({0: loads[0]})["all"]["max_over_mean"] == pytest.approx(4 / 3), "and it is a number elsewhere"
    assert describe({}) == {}


def test_over_all_layers():
    counts = [([3, 1, 4, 1], 2, 1), ([0, 9, 0, 1], 6, 3), ([2, 2, 2, 2], 0, 0)]
    layers = [by_hand(*counted) for counted in counts]
    assert over_all(Load.of(tally(*counted)) for counted in counts) == pytest.approx(
        {
            "max_over_mean": max(layer["max_over_mean"] for layer in layers),
            "entropy": min(layer["entropy"] for layer in layers),
            "dropped": sum(layer["dropped"] for layer in layers) / 3,
            "overflow": sum(layer["overflow"] for layer in layers) / 3,
            "dead": 2,
        }
    )


def deep(layers, experts):
    return {n: Load.of(tally(torch.randint(1, 99, (experts,)).tolist())) for n in range(layers)}


def test_few_keys_however_large_the_model():
    small, large = metrics(deep(16, 4)), metrics(deep(94, 256))
    assert len(small) == len(large) == 5 * (SHOWN_LAYERS + 1)
    shown = some_of(range(94))
    assert {key.split("/")[1] for key in large} == {*map(str, shown), "all"}
    assert (shown[0], shown[-1], len(set(shown))) == (0, 93, 16)
    gaps = {after - before for before, after in pairwise(shown)}
    assert gaps == {6, 7}
    assert some_of([5, 3, 61]) == [3, 5, 61]


def test_what_is_over_all_layers_sees_those_not_shown():
    loads = deep(94, 8)
    hidden = next(layer for layer in loads if layer not in some_of(loads))
    before = metrics(loads)
    loads[hidden] = Load.of(tally([0] * 7 + [5]))
    after = metrics(loads)
    assert before["moe/all/max_over_mean"] < 8 == after["moe/all/max_over_mean"]
    assert (before["moe/all/dead"], after["moe/all/dead"]) == (0, 7)
    assert {key for key in before if before[key] != after[key]} == {
        f"moe/all/{name}" for name in ("max_over_mean", "entropy", "dead")
    }
