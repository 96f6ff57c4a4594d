"""Records of two texts or a text and its label: the split, the rows by hand, lengths, and what is refused."""

import pytest

from builder.data import ValBatches, prepare
from builder.data.records import split_records
from builder.errors import ArchlabError
from tests.data.runs import config, objective, prepared, records, said, texts

BYTES = config("tokenizer", "bytes")
KEYS = {"pairs": ("source", "tokens"), "labelled": ("tokens", "labels"), "contrastive": ("tokens", "other")}


def made(cache, kind, given, train_length=9, **knobs):
    """The corpus of these records."""
    return prepared(records(kind, given, **knobs), BYTES, train_length=train_length, cache=cache)


def all_rows(held):
    """The rows of both splits, without padding, sorted."""
    batches = [*ValBatches(held.train, batch=3), *ValBatches(held.val, batch=3)]
    halves = ([_plain(row) for batch in batches for row in batch[key]] for key in KEYS[held.kind])
    return sorted(zip(*halves, strict=True))


def _plain(row):
    return row.item() if row.dim() == 0 else row[row != 257].tolist()


def ids(text):
    return [*text.encode(), 256]


def expected(kind, given, labels=()):
    """The same, by hand."""
    ways = {
        "pairs": lambda second: [256, *ids(second)],
        "labelled": lambda second: labels.index(second),
        "contrastive": ids,
    }
    return sorted((ids(first), ways[kind](second)) for first, second in given)


@pytest.mark.parametrize("kind", KEYS)
def test_rows_of_every_kind(tmp_path, kind):
    given = list(zip(said(20), [text.split()[0] for text in said(20, seed=1)], strict=True))
    held = made(tmp_path, kind, given, 80, val_fraction=0.4)
    assert held.labels == (tuple(sorted({second for _, second in given})) if kind == "labelled" else ())
    assert all_rows(held) == expected(kind, given, held.labels)


def test_no_first_text_stands_on_both_sides():
    given = [(text, str(number)) for number in range(3) for text in said(40)]
    train, val = split_records(given, 0.25)
    assert sorted(train + val) == sorted(given) and not {first for first, _ in train} & {first for first, _ in val}
    assert 0.2 < len(val) / len(given) < 0.3
    again = split_records([*given, ("one more", "x")], 0.25)
    assert len({first for first, _ in val} ^ {first for first, _ in again[1]}) <= 2  # others stay where they are


def test_bits_per_byte_are_those_of_the_targets(tmp_path):
    given = [("aaaa", "xé"), ("b", "yyy")]
    assert made(tmp_path, "pairs", given, val_fraction=0.5).val_bytes_per_token == 3 / 4  # either target, and its end
    cut = made(tmp_path, "pairs", given, val_fraction=0.5, overlong="truncate")
    assert cut.val_bytes_per_token is None  # what is left of a target isn't known in bytes
    assert made(tmp_path, "contrastive", given).val_bytes_per_token is None


LONG = [*((text, "short") for text in ("aaa", "bbb", "ccc", "ddd")), ("e" * 12, "x"), ("fff", "y" * 9)]


@pytest.mark.parametrize("kind", ["pairs", "contrastive"])
def test_texts_longer_than_a_row(tmp_path, kind):
    with pytest.raises(ArchlabError) as caught:
        made(tmp_path, kind, LONG, 6, val_fraction=0.3)
    message = str(caught.value)
    assert "data.overlong: found refuse, and 2 of 6 records longer than model.train_length=6" in message
    assert "longest of 13 tokens: 'eeeeeeeeeeee'" in message and "model.train_length=13" in message
    assert all_rows(made(tmp_path, kind, LONG, 13, val_fraction=0.3)) == expected(kind, LONG)
    dropped = made(tmp_path, kind, LONG, 6, val_fraction=0.3, overlong="drop")
    assert all_rows(dropped) == expected(kind, LONG[:4])
    cut = made(tmp_path, kind, LONG, 6, val_fraction=0.3, overlong="truncate")
    assert all_rows(cut) == expected(kind, [*LONG[:4], ("eeeee", "x"), ("fff", "yyyyy")])


@pytest.mark.parametrize("kind", KEYS)
def test_what_leaves_a_split_empty(tmp_path, kind):
    with pytest.raises(ArchlabError, match=r"data\.val_fraction: found 0\.1 over 2 records with 1 first texts"):
        made(tmp_path, kind, [("same", "a"), ("same", "b")])
    with pytest.raises(ArchlabError, match=r"data\.overlong: found drop, and all of the 1 records of a split"):
        made(tmp_path, kind, [("a" * 20, "x"), ("b" * 20, "y")], overlong="drop")


def test_a_single_label_tells_nothing_apart(tmp_path):
    with pytest.raises(ArchlabError, match="data: found 3 records, all with the label 'x'"):
        made(tmp_path, "labelled", [("a", "x"), ("b", "x"), ("c", "x")])


@pytest.mark.parametrize(
    ("data", "reads", "fix"),
    [
        (records("labelled", []), "text", "or text"),
        (texts([]), "pairs", "next_token"),
        (config("data", "copy", n_symbols=4, form="pairs"), "text", "python_docs"),
    ],
)
def test_an_objective_that_reads_other_data(data, reads, fix):
    run = type("Run", (), {"data": data, "objective": objective(reads)})
    with pytest.raises(ArchlabError) as caught:
        prepare(run, cache=None)  # type: ignore[arg-type]
    found = f"objective: found made_up, which reads {reads}, and data {data.name} gives {data.kind}"
    assert found in str(caught.value) and fix in str(caught.value)
