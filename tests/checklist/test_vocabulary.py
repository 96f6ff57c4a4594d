"""Question 6: rows against the tokenizer's ids, the special ones, and the largest id in the data."""

import pytest
import torch

from builder.data import Corpus, Shape
from builder.data.samples.stream import Stream
from builder.data.tokenizer.bytes import Bytes
from builder.finding import Status


class Stub:
    """A tokenizer of `size` ids with these special ones."""

    def __init__(self, size=258, **specials):
        self.size, self.specials = size, specials or {"eos": 256, "pad": 257}

    def __len__(self):
        return self.size


def corpus(largest, tokenizer=None):
    train, val = (Stream(torch.tensor(row), Shape(1), Bytes()) for row in ([3, 4, 5], [1, largest]))
    return Corpus(tokenizer or Stub(), train, val, "mark")


@pytest.fixture
def told(judge):
    """told(path, changes, **data): the finding of section 6 at a path."""

    def find(path, changes=(), **data):
        (found,) = (f for f in judge(changes, **data).findings if f.section == 6 and f.path == path)
        return found

    return find


@pytest.mark.parametrize(("rows", "status"), [(257, "FAIL"), (258, "PASS"), (320, "PASS")])
def test_rows_against_ids(told, rows, status):
    finding = told("model.vocab_size", {"model.vocab_size": rows})
    assert finding.status == status and f"{rows} embedding rows, {rows} logits rows" in finding.found
    assert ("never sampled" in finding.rule) == (rows > 258)


def test_the_tokenizer_that_was_read_counts_not_the_declared_one(told):
    finding = told("model.vocab_size", {"model.vocab_size": 258}, tokenizer=Stub(300))
    assert finding.status is Status.FAIL and "300 ids" in finding.found and "300" in finding.fix


@pytest.mark.parametrize(("largest", "status"), [(257, "PASS"), (258, "FAIL"), (400, "FAIL")])
def test_the_largest_id_of_the_data_has_a_row(told, largest, status):
    finding = told("data", corpus=corpus(largest))
    assert finding.status == status and str(largest) in finding.found


@pytest.mark.parametrize("largest", [258, 400])
def test_the_rows_that_are_asked_for_are_enough(told, largest):
    fix = told("data", corpus=corpus(largest)).fix
    key, _, value = fix.partition("=")
    assert key == "model.vocab_size" and told("data", {key: int(value)}, corpus=corpus(largest)).status is Status.PASS


def test_data_that_was_not_read_is_unknown(told):
    assert told("data").status is Status.UNKNOWN


def test_special_ids_are_distinct(told):
    finding = told("tokenizer", tokenizer=Stub(eos=256, pad=256))
    assert finding.status is Status.FAIL and "eos 256, pad 256" in finding.found
    assert "vocab_size" not in finding.fix and "of its own" in finding.fix, "more rows would mend nothing"
    assert told("tokenizer", tokenizer=Stub(eos=256, pad=257)).status is Status.PASS


def test_special_ids_have_rows(told):
    finding = told("tokenizer", tokenizer=Stub(eos=256, pad=300))
    assert finding.status is Status.FAIL and "vocab_size" in finding.fix
