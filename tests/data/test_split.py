"""The split: sizes, disjointness, and the sides that would be empty."""

import random

import pytest

from builder.data.split import split
from builder.errors import ArchlabError


def texts(count, seed=0):
    draw = random.Random(seed)
    return [f"{number} " + "".join(draw.choices("abc é你\n", k=draw.randint(1, 60))) for number in range(count)]


def test_tail_is_the_end_of_the_whole_text():
    documents = texts(40)
    train, val = split(documents, 0.25, "tail")
    whole = "".join(documents)
    assert "".join(train) + "".join(val) == whole
    assert len("".join(val)) == round(0.25 * len(whole))


def test_tail_cuts_the_document_on_the_border():
    assert split(["0123456789"], 0.3, "tail") == (["0123456"], ["789"])
    assert split(["01234", "56789"], 0.3, "tail") == (["01234", "56"], ["789"])
    assert split(["01234", "56789"], 0.5, "tail") == (["01234"], ["56789"])


def test_documents_stay_whole_and_reach_the_share():
    documents = texts(40)
    train, val = split(documents, 0.25, "documents")
    assert sorted(train + val) == sorted(documents) and not set(train) & set(val)
    assert train == [text for text in documents if text in set(train)]  # in the order of the source
    size, total = len("".join(val)), len("".join(documents))
    assert 0.25 * total <= size < 0.25 * total + max(map(len, val))


def test_documents_do_not_depend_on_the_order_of_the_source():
    documents = texts(40)
    mixed = random.Random(1).sample(documents, len(documents))
    assert set(split(documents, 0.25, "documents")[1]) == set(split(mixed, 0.25, "documents")[1])


@pytest.mark.parametrize("how", ["tail", "documents"])
@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_shared(how, seed):
    documents = texts(10, seed)
    mixed = random.Random(seed).choices(documents, k=60)  # many duplicates
    train, val = split(mixed, 0.5, how)
    assert train and val and not set(train) & set(val)
    assert set(train) | set(val) >= set(mixed) - {mixed[len(train) - 1]}  # only copies go; tail may cut one document


def test_a_duplicate_leaves_the_validation_side_only():
    assert split(["aaaa", "bbbb", "aaaa", "cccc"], 0.5, "tail") == (["aaaa", "bbbb"], ["cccc"])


@pytest.mark.parametrize(
    ("documents", "fraction", "how", "side", "fix"),
    [
        (["abc"], 0.1, "tail", "no validation text", "data.split=documents"),
        (["abc"], 0.9, "tail", "no training text", "data.split=documents"),
        (["abc"], 0.5, "documents", "no training text", "data.split=tail"),
        (
            ["same", "same"],
            0.5,
            "documents",
            "all of its 1 documents also stand in the training text",
            "data.split=tail",
        ),
        ([], 0.5, "tail", "no training text", "a source with more text"),
    ],
)
def test_an_empty_side(documents, fraction, how, side, fix):
    with pytest.raises(ArchlabError) as caught:
        split(documents, fraction, how)
    text = str(caught.value)
    assert "data.val_fraction" in text and side in text and fix in text
