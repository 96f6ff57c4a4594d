"""Question 6: rows against the tokenizer's ids, the special ones, and the largest id in the data."""

import dataclasses

import pytest
import torch

from builder import registry
from builder.checklist import vocabulary
from builder.data import Corpus, Shape
from builder.data.ragged import Ragged
from builder.data.samples.answers import Answers
from builder.data.samples.documents import Documents
from builder.data.samples.drawn import Drawn
from builder.data.samples.mixed import Mixed
from builder.data.samples.records import Pairs
from builder.data.samples.stream import Stream
from builder.data.tokenizer.bytes import Bytes
from builder.finding import Status
from builder.ledger.states import once


class Stub(Bytes):
    """A tokenizer of `size` ids with these special ones."""

    def __init__(self, size=258, **specials):
        super().__init__()
        self.size, self.specials = size, specials or {"eos": 256, "pad": 257}

    def __len__(self):
        return self.size


def corpus(largest, tokenizer=None, **beside):
    train, val = (Stream(torch.tensor(row), Shape(1), Bytes()) for row in ([3, 256, 5], [1, largest]))
    return Corpus(tokenizer or Stub(), train, val, "mark", **beside)


@pytest.fixture
def told(judge):
    """told(path, changes, about="...", **data): the finding of section 6 at a path that has this text in it."""

    def find(path, changes=(), about="", **data):
        findings = judge(changes, trains=False, **data).findings
        (found,) = (f for f in findings if f.section == 6 and f.path == path and about in f"{f.found}; {f.rule}")
        return found

    return find


@pytest.mark.parametrize(("rows", "status"), [(257, "FAIL"), (258, "PASS"), (320, "PASS")])
def test_rows_against_ids(told, rows, status):
    finding = told("model.vocab_size", {"model.vocab_size": rows})
    assert finding.status == status and f"{rows} embedding rows, {rows} logits rows" in finding.found
    assert ("never sampled" in finding.rule) == (rows > 258)


def test_a_tokenizer_that_learnt_less_than_was_asked_for(told):
    bpe = {"tokenizer": {"name": "bpe", "vocab_size": 1024}}
    finding = told("model.vocab_size", bpe, tokenizer=Stub(300))
    assert finding.status is Status.WARN and finding.fix.startswith("tokenizer.vocab_size=300")
    assert told("model.vocab_size", {"tokenizer": {"name": "bpe", "vocab_size": 300}}, tokenizer=Stub(300)).fix == ""


def test_the_tokenizer_that_was_read_counts_not_the_declared_one(told):
    finding = told("model.vocab_size", {"model.vocab_size": 258}, tokenizer=Stub(300))
    assert finding.status is Status.FAIL and "300 ids" in finding.found and "300" in finding.fix


@pytest.mark.parametrize(("largest", "status"), [(257, "PASS"), (258, "FAIL"), (400, "FAIL")])
def test_the_largest_id_of_the_data_has_a_row(told, largest, status):
    finding = told("data", about="largest id", corpus=corpus(largest))
    assert finding.status == status and str(largest) in finding.found


@pytest.mark.parametrize("largest", [258, 400])
def test_the_rows_that_are_asked_for_are_enough(told, largest):
    fix = told("data", about="largest id", corpus=corpus(largest)).fix
    key, _, value = fix.partition("=")
    mended = told("data", {key: int(value)}, "largest id", corpus=corpus(largest))
    assert key == "model.vocab_size" and mended.status is Status.PASS


@pytest.mark.parametrize("path", ["data", "tokenizer"])
def test_what_was_not_read_is_unknown(told, path):
    assert told(path).status is Status.UNKNOWN


def test_special_ids_are_distinct(told):
    finding = told("tokenizer", about="special ids", tokenizer=Stub(eos=256, pad=256))
    assert finding.status is Status.FAIL and "eos 256, pad 256" in finding.found
    assert "vocab_size" not in finding.fix and "of its own" in finding.fix, "more rows would mend nothing"
    assert told("tokenizer", about="special ids", tokenizer=Stub(eos=256, pad=257)).status is Status.PASS


@pytest.mark.parametrize(
    ("size", "pad", "fix"), [(400, 300, "model.vocab_size=null"), (258, 300, "below its length"), (400, -1, "below")]
)
def test_special_ids_are_among_the_tokenizers_own_and_have_rows(told, size, pad, fix):
    changes = {"model.vocab_size": 270}
    finding = told("tokenizer", changes, "special ids", tokenizer=Stub(size, eos=256, pad=pad))
    assert finding.status is Status.FAIL and fix in finding.fix


class Short(registry.find("head", "language_model")):
    """A head without the last row."""

    def __init__(self, config, site, vocab_size):
        super().__init__(config, site, vocab_size - 1)


def test_rows_are_those_of_the_model_that_is_built(told, plant):
    plant("head", "short")(Short)
    changes = {"model.head": {"name": "short"}, "model.tie_embeddings": False}
    finding = told("model.head", changes, "logits rows")
    assert finding.status is Status.FAIL and "258 embedding rows, 257 logits rows" in finding.found
    assert told("model.vocab_size", changes | {"model.head": {"name": "language_model"}}).status is Status.PASS


def test_a_head_without_tokens_needs_no_row_for_each(told):
    changes = {"model.head": {"name": "classifier", "n_classes": 7}, "model.tie_embeddings": False}
    finding = told("model.vocab_size", changes)
    assert finding.status is Status.PASS and "a head that gives classes" in finding.found


def test_source_and_target_share_a_table(told, monkeypatch):
    two = {"model.kind": "encoder_decoder", "model.encoder": {"n_layers": 1}, "model.pattern": ["attention+cross+ffn"]}
    two |= {"model.cross": {"name": "cross", "n_heads": 4}}
    assert told("model.encoder", two).status is Status.PASS

    def apart(spec):
        model = once(spec)
        model.encoder.embedding.weight = torch.nn.Parameter(model.embedding.weight[1:])
        return model

    monkeypatch.setattr(vocabulary, "once", apart)
    finding = told("model.encoder", two)
    assert finding.status is Status.FAIL and "258 and 257 rows" in finding.found


HIGH, LOW = [3, 5, 400], [3, 5, 6]


def one(*row):
    return Stream(torch.tensor(row), Shape(1), Bytes())


def pieces(*row):
    return Ragged.of(torch.tensor([*row, 256]), 256)


def drawn(*row):
    made = {"tokens": torch.tensor([row])}
    rows = {"count": 4, "held": False, "fraction": 0.5}
    return Drawn(
        lambda draw, shape: {k: v.repeat(len(draw.keys), 1) for k, v in made.items()}, Shape(2), Bytes(), **rows
    )


WHERE = {
    "another source of a mixture": lambda *row: Mixed([one(*LOW), one(*row)], [3.0, 1.0]),
    "a target": lambda *row: Pairs({"source": pieces(1, 2), "tokens": pieces(*row)}, Bytes(), (), ()),
    "a source": lambda *row: Pairs({"source": pieces(*row), "tokens": pieces(1, 2)}, Bytes(), (), ()),
    "packed documents": lambda *row: Documents(torch.tensor([*row, 256]), Shape(8), Bytes()),
    "texts of which answers count": lambda *row: Answers(one(*row), one(0, 1, 1)),
}


@pytest.mark.parametrize("side", ["train", "val"])
@pytest.mark.parametrize("where", WHERE)
def test_the_largest_id_is_looked_for_everywhere(told, where, side):
    for row, status in ((LOW, "PASS"), (HIGH, "FAIL")):
        data = dataclasses.replace(corpus(5), **{side: WHERE[where](*row)})
        assert told("data", about="largest id", corpus=data).status == status


def test_ids_that_are_drawn_are_read_and_not_only_declared(told):
    for row, status in (([3, 256, 5], "PASS"), ([3, 256, 400], "FAIL"), ([3, 256, -1], "FAIL")):
        finding = told("data", about="largest id", corpus=dataclasses.replace(corpus(5), train=drawn(*row)))
        assert finding.status == status and (("-1" in finding.found) == (-1 in row))
