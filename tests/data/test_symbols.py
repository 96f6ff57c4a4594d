"""The tokenizer of numbers: its text, its ids, and what it refuses."""

import random

import pytest

from builder.data.tokenizer import Tokenizer
from builder.data.tokenizer.symbols import Symbols
from builder.errors import ArchlabError
from tests.data.runs import config


@pytest.fixture
def tokenizer(tmp_path):
    return Symbols.prepare(config("tokenizer", "symbols", n_symbols=20), [], tmp_path)


def test_numbers_are_their_ids(tokenizer):
    assert tokenizer.encode("17 4  9 >\n3") == [17, 4, 9, 22, 3] and tokenizer.encode("") == []
    assert tokenizer.decode([17, 20, 4, 21, 22, 9]) == "17 4 > 9"
    assert tokenizer.specials == {"<eos>": 20, "<pad>": 21} and (tokenizer.eos, tokenizer.pad) == (20, 21)
    assert len(tokenizer) == config("tokenizer", "symbols", n_symbols=20).size == 23
    assert tokenizer.encode_corpus(["1 2", ""]).tolist() == [1, 2, 20, 20]


@pytest.mark.parametrize("word", ["20", "-1", "x", "1,2", "³", "1.0"])
def test_what_is_no_symbol_is_refused(tokenizer, word):
    with pytest.raises(ArchlabError, match=f"found '{word}'[\\s\\S]*knows 0 to 19 and >"):
        tokenizer.encode(f"3 {word} 4")


def test_any_ids_stream_to_their_decoding(tokenizer):
    draw = random.Random(0)
    for _ in range(100):
        ids = [draw.randrange(len(tokenizer)) for _ in range(30)]
        stream = tokenizer.stream()
        assert "".join(stream.push(id) for id in ids) + stream.flush() == tokenizer.decode(ids)


def test_saved_and_loaded_it_is_the_same(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    loaded = Symbols.load(config("tokenizer", "symbols", n_symbols=20), tmp_path)
    assert isinstance(loaded, Tokenizer) and loaded.fingerprint == tokenizer.fingerprint
    assert loaded.encode("19 >") == tokenizer.encode("19 >")
    assert Symbols(21).fingerprint != tokenizer.fingerprint
