"""What a step reads, in sequences or tokens, and how it is computed: said once, and refused where it can't be."""

from collections.abc import Callable
from typing import Any

import pytest

from builder import load
from builder.errors import Problem

Edit = Callable[[dict[str, Any]], dict[str, Any]]
Refused = Callable[[dict[str, Any]], dict[str, Problem]]


def test_a_step_that_says_nothing_reads_32_sequences(edited: Edit):
    spec = load(edited({"batch": {}}))
    assert (spec.rows, spec.to_dict()["batch"]["sequences"]) == (32, 32)


def test_a_step_in_tokens_reads_whole_sequences(edited: Edit):
    spec = load(edited({"batch": {"tokens": 1280}, "model.train_length": 128}))
    assert spec.rows == 10
    assert load(spec.to_dict()) == spec
    assert spec.hash != load(edited({"batch": {"tokens": 2560}, "model.train_length": 128})).hash


def test_tokens_that_cut_a_sequence_are_refused(edited: Edit, refused: Refused):
    (problem,) = refused(edited({"batch": {"tokens": 1300}, "model.train_length": 128})).values()
    assert (problem.path, problem.found, problem.fix) == ("batch.tokens", "1300", "batch.tokens=1280")


def test_a_size_that_is_given_twice_is_refused(edited: Edit, refused: Refused):
    problem = refused(edited({"batch": {"tokens": 1280, "sequences": 10}}))["batch.tokens"]
    assert problem.fix == "batch.sequences=null batch.tokens=1280"


@pytest.mark.parametrize("value", [0, -1, "most", 1.5, True])
def test_a_micro_batch_is_a_number_or_auto(value: Any, edited: Edit, refused: Refused):
    assert any(path.startswith("batch.micro_batch") for path in refused(edited({"batch.micro_batch": value})))


@pytest.mark.parametrize("value", [1, 7, "auto", None])
def test_what_a_micro_batch_may_be(value: Any, edited: Edit):
    assert load(edited({"batch.micro_batch": value})).batch.micro_batch == value


def test_a_slot_that_no_model_has_is_not_recomputed(edited: Edit, refused: Refused):
    (problem,) = refused(edited({"activation_checkpointing": ["fnn"]})).values()
    assert problem.path == "activation_checkpointing" and "attention, ffn" in problem.rule


def test_all_slots_are_recomputed_when_asked(edited: Edit):
    assert load(edited({"activation_checkpointing": True})).recomputed == tuple(load(edited({})).model.slots)
    assert load(edited({"activation_checkpointing": ["ffn"]})).recomputed == ("ffn",)
    assert load(edited({"activation_checkpointing": False})).recomputed == ()
