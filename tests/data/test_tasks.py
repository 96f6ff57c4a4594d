"""Tasks whose answers are known: every answer by a loop, what is never trained on, and what has no room."""

import pytest
import torch

from builder.data import TrainBatches, ValBatches
from builder.data.samples.drawn import Drawn
from builder.errors import ArchlabError
from tests.data.runs import TASKS, config, prepared

ROOM = 22


def corpus(cache, name, *, train_length=ROOM, ahead=1, n_symbols=6, **knobs):
    data = config("data", name, n_symbols=n_symbols, **knobs)
    symbols = config("tokenizer", "symbols", n_symbols=n_symbols)
    return prepared(data, symbols, train_length=train_length, ahead=ahead, cache=cache)


def drawn(samples, steps=4, batch=50):
    for step in range(steps):
        batches = TrainBatches(samples, batch=batch, seed=0).at(step)
        yield from ({key: value[row] for key, value in batches.items()} for row in range(batch))


def closing(question):
    """The brackets that end a word, by a stack; None where it was none."""
    open_ones = []
    for symbol in question:
        if symbol % 2 == 0:
            open_ones.append(symbol)
        elif not open_ones or open_ones.pop() != symbol - 1:
            return None
    return [symbol + 1 for symbol in reversed(open_ones)]


SEQUENCES = {"copy": list, "reverse": lambda x: x[::-1], "sort": sorted, "brackets": closing}
EOS, PAD, MARK = 6, 7, 8


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("ahead", [0, 1])
def test_a_sequence_and_its_answer_in_one_row(tmp_path, name, ahead):
    lengths = set()
    for row in drawn(corpus(tmp_path, name, ahead=ahead).train):
        tokens = row["tokens"][row["attention_mask"]].tolist()
        assert len(row["tokens"]) <= ROOM + ahead
        mark = tokens.index(MARK)
        question, answer = tokens[:mark], tokens[mark + 1 : -1]
        assert answer == SEQUENCES[name](question) and tokens[-1] == EOS and max(question) < 6
        assert row["counted"].nonzero().flatten().tolist() == list(range(mark + 1, len(tokens)))
        lengths.add(len(question))
    assert lengths == set(range(1, (ROOM + ahead - 2) // 2 + 1))


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_sequence_and_its_answer_as_pairs(tmp_path, name):
    held = corpus(tmp_path, name, form="pairs", min_length=3, max_length=9)
    assert held.kind == "pairs"
    lengths = set()
    for row in drawn(held.train):
        source, tokens = row["source"][row["source_mask"]].tolist(), row["tokens"][row["attention_mask"]].tolist()
        assert source[-1] == tokens[0] == tokens[-1] == EOS  # which begins a target where nothing else does
        assert tokens[1:-1] == SEQUENCES[name](source[:-1])
        lengths.add(len(source) - 1)
    assert lengths == set(range(3, 10))


def test_an_answer_that_is_wrong_is_seen():
    assert closing([0, 2, 3]) == [1] and closing([0, 3]) is None and closing([1]) is None


@pytest.mark.parametrize(("ahead", "train_length"), [(1, 22), (0, 23), (1, 33)])
def test_each_key_is_asked_for_once_and_its_value_counted(tmp_path, ahead, train_length):
    held = corpus(tmp_path, "recall", n_pairs=3, n_symbols=12, ahead=ahead, train_length=train_length)
    for row in drawn(held.train):
        tokens, counted = row["tokens"].tolist(), row["counted"].nonzero().flatten().tolist()
        assert len(tokens) == train_length + ahead
        told = dict(zip(tokens[0:6:2], tokens[1:6:2], strict=True))
        assert len(told) == len(set(told.values())) == 3 and max(told) < 6 <= min(told.values())
        asked = [tokens[place - 1] for place in counted]
        assert sorted(asked) == sorted(told) and all(told[tokens[place - 1]] == tokens[place] for place in counted)
        rest = [token for place, token in enumerate(tokens) if place >= 6 and place + 1 not in counted]
        assert min(rest) >= 6 and max(rest) < 12  # no other key comes up


def test_keys_are_asked_for_by_the_power_law(tmp_path):
    """The place of the only key, against p(i) ~ i^(a - 1) of Arora et al. 2024, appendix E."""
    held = corpus(tmp_path, "recall", n_pairs=1, n_symbols=12, power=0.3)
    places = torch.tensor([(int(row["counted"].nonzero()) - 3) // 2 for row in drawn(held.train, 40, 100)])
    law = torch.arange(1, 11, dtype=torch.float64) ** (0.3 - 1)
    law = law / law.sum()
    found = torch.bincount(places, minlength=10) / len(places)
    assert ((found - law).abs() < 5 * (law * (1 - law) / len(places)).sqrt()).all()


def test_what_stood_behind_the_mark(tmp_path):
    for row in drawn(corpus(tmp_path, "induction").train):
        tokens = row["tokens"].tolist()
        first, second = (place for place, token in enumerate(tokens) if token == MARK)
        assert second == len(tokens) - 2 == ROOM - 1 and tokens[first + 1] == tokens[-1] < 6
        assert row["counted"].nonzero().flatten().tolist() == [ROOM]


def test_sums(tmp_path):
    met = set()
    for row in drawn(corpus(tmp_path, "modular_addition").train):
        a, b, mark, c = row["tokens"].tolist()
        assert mark == MARK and c == (a + b) % 6 and row["counted"].tolist() == [False, False, False, True]
        met.add((a, b))
    assert 25 < len(met) < 36


SMALL = {"recall": {"n_pairs": 1, "n_symbols": 4, "train_length": 4}, "induction": {"train_length": 5, "n_symbols": 2}}


@pytest.mark.parametrize("name", TASKS)
def test_what_is_validated_on_is_never_trained_on(tmp_path, name, monkeypatch):
    """In a space so small that training meets all of it but what is held out."""
    shape = SMALL.get(name, {"max_length": 3} if name in SEQUENCES else {})
    held = corpus(tmp_path, name, val_fraction=0.3, val_rows=200, **{"n_symbols": 4, **shape})

    def sides():
        batches = [TrainBatches(held.train, batch=500, seed=1).at(step) for step in range(4)]
        both = batches, ValBatches(held.val, batch=100)
        return [{tuple(row) for batch in side for row in batch["tokens"].tolist()} for side in both]

    train, val = sides()
    assert train and val and not train & val and len(val) > 1
    monkeypatch.setattr(Drawn, "_wrong", lambda self, batch: torch.tensor([], dtype=torch.int64).numpy())
    train, val = sides()
    assert train & val


def test_validation_is_the_same_for_every_seed_and_the_share_is_that_asked_for(tmp_path):
    held = corpus(tmp_path, "modular_addition", n_symbols=97, val_fraction=0.4, val_rows=3000)
    pairs = {tuple(row[:2]) for batch in ValBatches(held.val, batch=500) for row in batch["tokens"].tolist()}
    assert len(pairs) < 0.43 * 97**2
    half = corpus(tmp_path, "modular_addition", n_symbols=97, val_fraction=0.4, val_rows=10)
    assert torch.equal(half.val.every(), held.val.every()[:10]) and half.fingerprint != held.fingerprint


REFUSED = [
    ("recall", {"n_pairs": 6}, "data.n_pairs: found 6, in rows of model.train_length=22", "data.n_pairs=5"),
    ("recall", {"n_pairs": 4}, "data.n_symbols: found 6, for 4 pairs", "data.n_symbols=8"),
    ("induction", {"train_length": 2}, "model.train_length: found 2", "model.train_length=3"),
    ("modular_addition", {"train_length": 2}, "model.train_length: found 2", "model.train_length=3"),
    ("copy", {"max_length": 11}, "data.max_length: found 11", "data.max_length=10"),
    ("sort", {"min_length": 11}, "data.min_length: found 11", "data.min_length=10"),
    ("copy", {"min_length": 4, "max_length": 3}, "data.max_length: found 3", "data.max_length=4"),
    ("reverse", {"form": "pairs", "max_length": 22}, "data.max_length: found 22", "data.max_length=21"),
    ("brackets", {"n_symbols": 5}, "data.n_symbols: found 5", "data.n_symbols=6"),
    ("copy", {"n_symbols": 2, "max_length": 1, "val_fraction": 0.05}, "data.val_fraction: found 0.05", "longer rows"),
]


@pytest.mark.parametrize(("name", "knobs", "found", "fix"), REFUSED)
def test_what_has_no_room(tmp_path, name, knobs, found, fix):
    with pytest.raises(ArchlabError) as caught:
        corpus(tmp_path, name, **knobs)
    assert found in str(caught.value) and fix in str(caught.value)


@pytest.mark.parametrize("tokenizer", [("bytes", {}), ("symbols", {"n_symbols": 5})])
def test_a_symbol_without_an_id_of_its_number(tmp_path, tokenizer):
    name, knobs = tokenizer
    with pytest.raises(ArchlabError, match=f"tokenizer: found {name}, for a task of 6[\\s\\S]*tokenizer.n_symbols=6"):
        prepared(
            config("data", "copy", n_symbols=6), config("tokenizer", name, **knobs), train_length=9, cache=tmp_path
        )
