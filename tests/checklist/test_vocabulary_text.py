"""Question 6: whether text comes back from the tokenizer, how it begins and ends, and what may be written."""

import unicodedata

import pytest
import torch

from builder import build, generate
from builder.checklist import ends, spelling
from builder.compose import compose
from builder.data import Corpus, Shape, cache_folder, prepare
from builder.data.samples.documents import Documents
from builder.data.samples.padded import Texts
from builder.data.samples.stream import Stream
from builder.data.tokenizer.bytes import Bytes
from builder.data.tokenizer.symbols import Symbols
from builder.finding import Status
from builder.load import load


class Spoilt(Bytes):
    """Bytes of what `spoil` makes of a text."""

    def __init__(self, spoil):
        super().__init__(("mask",))
        self.spoil = spoil

    def encode(self, text):
        return super().encode(self.spoil(text))


class Letters(Bytes):
    """Bytes of what is ASCII; all else is one unknown id, and marks vanish."""

    UNKNOWN = 0

    def encode(self, text):
        marked = [letter for letter in text if unicodedata.category(letter) != "Mn"]
        return [ord(letter) if "\x00" < letter < "\x80" else self.UNKNOWN for letter in marked]


class Eager(Bytes):
    """Bytes in which the text of the end is the end."""

    def encode(self, text):
        first, *others = (super(Eager, self).encode(part) for part in text.split("<eos>"))
        return [*first, *(id for part in others for id in (self.eos, *part))]


class Begun(Bytes):
    """Bytes that begin each text with id 1, and `more` of them."""

    bos = 1

    def __init__(self, more=0):
        super().__init__()
        self.more = more

    def encode(self, text):
        return [self.bos] * self.more + super().encode(text)

    def encode_corpus(self, texts):
        return torch.tensor([id for text in texts for id in self.whole(text)])


def about(findings, part):
    (found,) = (finding for finding in findings if part in f"{finding.found}; {finding.rule}")
    return found


def unaccented(text):
    return "".join(letter for letter in unicodedata.normalize("NFD", text) if unicodedata.category(letter) != "Mn")


def refuse(text):
    raise UnicodeError(f"no {text!r} here")


SPOILT = {
    "case": str.lower,
    "accents": lambda text: unicodedata.normalize("NFC", unaccented(text)),
    "white space": lambda text: " ".join(text.split()),
    "control characters": lambda text: text.replace("\x00", ""),
    "the forms of letters": lambda text: unicodedata.normalize("NFC", text),
    "characters": lambda text: text.replace("漢", "汉"),
    "texts that it refuses": lambda text: text if text.isascii() else refuse(text),
}


@pytest.mark.parametrize("lost", SPOILT)
def test_what_a_tokenizer_loses_is_named(lost):
    finding = about(spelling.check(Spoilt(SPOILT[lost])), "come back")
    assert (finding.status, finding.section, finding.path) == ("WARN", 6, "tokenizer")
    assert f"what is lost: {lost};" in finding.rule and "tokenizer=bytes" in finding.fix


@pytest.mark.parametrize(
    ("texts", "status", "part"),
    [
        (("Ab", "cd" * 9999), "WARN", "1 of 2 texts"),
        (("ab", "cd"), "PASS", "2 of 2 texts"),
        ((), "UNKNOWN", "tokens alone"),
    ],
)
def test_the_texts_of_the_data_come_back(texts, status, part):
    finding = spelling.of_data(Spoilt(str.lower), texts)
    assert (finding.status, finding.path) == (status, "data") and part in f"{finding.found}; {finding.rule}"
    assert len(finding.found) < 200


@pytest.mark.parametrize("data", ["python_docs", "passages", "mixture"])
def test_a_corpus_keeps_how_its_first_texts_begin(data):
    spec = load(
        compose(
            [
                f"data={data}",
                *(
                    [
                        "objective=classification",
                        "model=encoder",
                        "model/head=classifier",
                        "model.head.n_classes=8",
                        "model.tie_embeddings=false",
                        "data.overlong=truncate",
                    ]
                    if data == "passages"
                    else []
                ),
            ]
        )
    )
    made = prepare(spec, cache=cache_folder())
    assert 0 < len(made.opening) <= 8 and all(0 < len(text) <= 1000 for text in made.opening)
    begins = made.tokenizer.decode(made.train.first(10)) if data == "python_docs" else made.opening[0]
    assert made.opening[0].startswith(begins)


def test_a_tokenizer_that_loses_several_things_names_them_all():
    finding = about(spelling.check(Spoilt(lambda text: " ".join(text.lower().split()))), "come back")
    assert "case, white space" in finding.rule or "white space, case" in finding.rule
    assert "'The quick brown fox jumps.' comes back as 'the quick brown fox jumps.'" in finding.found


def test_a_tokenizer_that_reads_nothing_fails():
    assert about(spelling.check(Spoilt(lambda text: "")), "come back").status is Status.FAIL


def test_a_tokenizer_of_a_few_words_is_warned_of():
    few = Spoilt(lambda text: text if text in ("", "cat") else refuse(text))
    assert {finding.status for finding in spelling.check(few)} == {Status.PASS, Status.WARN}
    assert ends.whole(few).status is Status.PASS


@pytest.mark.parametrize("kind", [Bytes, lambda: Symbols(10)], ids=["bytes", "symbols"])
def test_what_comes_back_passes(kind):
    findings = list(spelling.check(kind()))
    assert findings and {finding.status for finding in findings} == {Status.PASS}


def test_a_tokenizer_of_few_texts_is_asked_for_those(monkeypatch):
    monkeypatch.setattr(Symbols, "decode", lambda self, ids: ",".join(map(str, ids)))
    assert about(spelling.check(Symbols(10)), "come back").status is Status.WARN


def test_the_text_of_a_special_token_is_text():
    finding = about(spelling.check(Eager()), "written in a text")
    assert finding.status is Status.WARN and "<eos> written in a text is id 256" in finding.found
    assert about(spelling.check(Bytes()), "written in a text").status is Status.PASS


def test_characters_that_are_unknown_or_vanish_are_counted():
    finding = about(spelling.check(Letters()), "can be said")
    letters = {letter for text in spelling.HARD for letter in text if not letter.isspace()}
    marks = {letter for letter in letters if unicodedata.category(letter) == "Mn"}
    said = {letter for letter in letters if "\x00" < letter < "\x80"}
    assert finding.status is Status.WARN and finding.found.startswith(f"{len(said)} of {len(letters)}")
    assert f"{len(letters - said - marks)} become the unknown id 0, {len(marks)} vanish or are refused" in finding.rule
    assert spelling.unknown_of(Letters()) == 0 and spelling.unknown_of(Bytes()) is None


def read(*ids, **beside):
    return ends.Read({"tokens": torch.tensor([ids])} | beside)


@pytest.mark.parametrize(("share", "status"), [(0, "PASS"), (10, "PASS"), (11, "WARN")])
def test_the_unknown_tokens_of_the_data_are_counted(share, status):
    some = read(ends.GAP, 5, 5, source=torch.tensor([[0] * share + [5] * (998 - share)]))
    (finding,) = ends.of_data(Letters(), some, unknown=0)
    assert finding.status == status and f"{share / 10:.2f}% of 1,000 tokens" in finding.found
    assert not list(ends.of_data(Bytes(), some, unknown=None))


def test_what_stands_around_a_text_stands_there_once():
    assert ends.whole(Begun()).status is Status.PASS and ends.whole(Bytes()).status is Status.PASS
    assert ends.whole(Begun(1)).status is Status.FAIL, "twice"
    other = Bytes()
    other.bos = 1  # which its rows of a corpus don't know of
    assert ends.whole(other).status is Status.FAIL
    assert ends.whole(Spoilt(refuse)).status is Status.FAIL


def test_a_text_that_begins_twice_in_the_data_is_warned_of():
    for row, times in (([1, 1, 7, 256, 1, 1, 1, 8], 3), ([1, 7, 256, 1, 8], 0)):
        found = list(ends.of_data(Begun(), read(*row, other=torch.tensor([[1], [1]])), None))
        assert [finding.status for finding in found] == ["WARN"] * bool(times)
        assert not times or f"{times} times" in found[0].found


def corpus(tokenizer, *ids):
    return Corpus(tokenizer, *(Stream(torch.tensor(ids), Shape(1), tokenizer) for _ in range(2)), "mark")


@pytest.mark.parametrize(
    ("ids", "changes", "statuses"),
    [
        ([3, 4, 256, 5], {}, ["PASS"]),
        ([3, 4, 5, 5], {}, ["WARN"]),
        ([3, 4, 5, 5], {"sample.max_new_tokens": 200}, []),  # as the fix has it
        ([3, 4, 5, 5], {"model.kind": "encoder"}, []),
        ([3, 4, 5, 5], {"model.head": {"name": "classifier", "n_classes": 2}, "model.tie_embeddings": False}, []),
    ],
)
def test_a_model_that_writes_sees_texts_end(judge, ids, changes, statuses):
    found = judge({"model.deploy_length": 256} | changes, trains=False, corpus=corpus(Bytes(), *ids)).findings
    ended = [finding for finding in found if "ends" in finding.found and finding.path == "data"]
    assert [finding.status for finding in ended] == statuses
    assert all(("sample.max_new_tokens=200" in finding.fix) == (finding.status == "WARN") for finding in ended)


@pytest.mark.parametrize("layout", [Stream, Documents, Texts])
def test_ends_are_looked_for_all_over_the_data(layout):
    long, short = [5] * 4000 + [256], [7] * 3 + [256]  # the pieces of the long one come first in a layout
    made = layout(torch.tensor(long + short * 500), Shape(16), Bytes())
    assert ends.Read.of(made, 200).ended(256) > 20
    assert ends.Read.of(made, 200).ids.unique().tolist() == [5, 7, 256], "and no padding"


def test_symbols_are_no_texts_that_end(judge):
    found = judge({"model.vocab_size": 258}, trains=False, corpus=corpus(Symbols(5), 1, 2, 3)).findings
    assert [finding.found for finding in found if finding.path == "data" and finding.section == 6] == ["largest id 3"]


def test_a_tokenizer_of_ones_own_is_tried_in_a_run(judge, plant):
    @plant("tokenizer", "lowering")
    class Lowering(Bytes):
        def encode(self, text):
            return super().encode(text.lower())

    named, ids = {"tokenizer": {"name": "lowering"}}, corpus(Lowering(), 3, 256, 5)
    report = judge(named, probes=True, trains=False, corpus=ids)
    assert about(report.findings, "what is lost: case;").status is Status.WARN and report.ok
    unproven = about(judge(named, trains=False, corpus=ids).findings, "round trip of text: probes are off")
    assert unproven.status is Status.UNKNOWN and unproven.fix == "probes=true"


def test_what_may_be_written_is_what_generation_writes(run, judge):
    spec = run({"model.vocab_size": 300})
    model = build(spec.model, seed=0)
    with torch.no_grad():  # whatever was read, the rows that only pad win
        model.embedding.weight[258:] = model.embedding.weight[:258].mean(0) + 9 * model.embedding.weight[:42]
    prompt = torch.randint(258, (4, 6), generator=torch.Generator().manual_seed(0))
    ways = [{}, {"temperature": 5.0, "seed": 0}, {"num_beams": 3}, {"repetition_penalty": 2.0}, {"draft": model}]
    for rows, padded in ((300, True), (258, False)):
        model.n_tokens = rows
        written = [generate(model, prompt, max_new_tokens=8, pad=257, **way).tokens for way in ways]
        assert [bool((ids >= 258).any()) for ids in written] == [padded] * len(ways)
    found = about(judge({"model.vocab_size": 300}, trains=False, tokenizer=Bytes()).findings, "ids 0 to 257")
    assert (found.path, found.status) == ("sample", "PASS") and "none of the 42 behind it" in found.found
    assert "id 256 ends" in found.rule and "<pad> can be drawn" in found.rule


def test_a_mask_is_filled_with_no_special_token(judge):
    found = judge({"model.kind": "encoder"}, trains=False, tokenizer=Bytes(("mask",))).findings
    assert "any of them but a special one" in about(found, "ids 0 to 258").rule
