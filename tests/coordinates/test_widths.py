"""Copies at other widths: what grows, what stays, and what has no copy."""

import pytest

from builder import ConfigError, ledger
from builder.coordinates.widths import at_widths, read_widths, refuse
from tests.coordinates.conftest import MUP

MOE = ["model/ffn@model.moe=moe", "model.pattern=[attention+ffn,attention+moe]", "model.n_layers=2"]


def test_counts_grow_and_heads_keep_their_width(tiny):
    spec, _ = tiny(*MOE, "model.moe.expert.d_ff=24")
    for copy, times in zip(at_widths(spec.model, [16, 32, 128]), (0.5, 1, 4), strict=True):
        attention, ffn, moe = copy.slots["attention"], copy.slots["ffn"], copy.slots["moe"]
        assert copy.d_model == 32 * times
        assert (attention.n_heads, attention.n_kv_heads) == (4 * times, 2 * times)
        assert attention.head_width(copy.d_model) == 8
        assert (ffn.d_ff, moe.expert.d_ff) == (64 * times, 24 * times)
        assert (moe.n_experts, moe.top_k, copy.vocab_size) == (8, 2, spec.model.vocab_size)
        assert ledger(copy).params > 0  # it can be built


def test_a_copy_of_the_same_width_is_the_model(tiny):
    spec, _ = tiny(*MOE, *MUP)
    assert at_widths(spec.model, [32]) == [spec.model]


def test_latents_grow_and_what_carries_positions_does_not(tiny):
    spec, _ = tiny("model/attention=mla", "~model.attention.n_kv_heads")
    (copy,) = at_widths(spec.model, [64])
    attention = copy.slots["attention"]
    assert (attention.n_heads, attention.kv_rank, attention.q_rank) == (8, 64, None)
    assert (attention.d_head, attention.d_rope) == (32, 16)


def test_multi_query_attention_stays_that(tiny):
    spec, _ = tiny("model.attention.n_kv_heads=1")
    assert [copy.slots["attention"].kv_heads for copy in at_widths(spec.model, [16, 64])] == [1, 1]
    everyone = tiny("model.attention.n_kv_heads=null")[0]
    assert [copy.slots["attention"].kv_heads for copy in at_widths(everyone.model, [16, 64])] == [2, 8]


def test_multipliers_are_those_of_each_width(tiny):
    def scales(*more):
        return [copy.head.scale for copy in at_widths(tiny(*more)[0].model, [16, 32, 64])]

    assert scales(*MUP) == [1.0, 0.5, 0.25]
    assert scales(*MUP, "model.head.scale=1.0") == [2.0, 1.0, 0.5]  # twice what mu-P has
    assert scales() == [None] * 3
    assert scales("model.head.scale=3.0") == [3.0] * 3  # none of the init's


def test_a_multiplier_that_is_missing_is_missing_everywhere(tiny):
    model = tiny(*MUP)[0].model
    forgotten = model.model_copy(update={"head": model.head.model_copy(update={"scale": None})})
    assert [copy.head.scale for copy in at_widths(forgotten, [16, 64])] == [None, None]


def test_widths_at_which_a_count_is_not_whole_are_refused(tiny):
    spec, _ = tiny()
    refuse(spec, [16, 48])
    with pytest.raises(ConfigError) as error:
        refuse(spec, [16, 40])
    (problem,) = error.value.problems
    assert (problem.path, problem.found, problem.fix) == ("coordinates", "40", "coordinates=[16,32]")
    assert "attention.n_kv_heads 2" in problem.rule and "multiples of 16" in problem.rule


@pytest.mark.parametrize("value", [64, [64], [64, 64], [64, -32], [64, 32.0], ["64", 128], [True, 64], "all", {}])
def test_what_is_no_list_of_widths_is_refused(value):
    with pytest.raises(ConfigError, match=r"coordinates: found .*\n.*two widths"):
        read_widths(value)


def test_widths_are_read_in_order():
    assert read_widths([128, 32, 128, 64]) == (32, 64, 128)
    assert read_widths(None) is None
