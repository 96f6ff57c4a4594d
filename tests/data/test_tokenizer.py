"""Tokenizers: round trips, specials, streaming, saving, the cache, and damaged files."""

import codecs
import random

import pytest
import tokenizers
import torch
from pydantic import ValidationError

from builder import registry
from builder.data.stream import StreamDecoder
from builder.data.tokenizer import Tokenizer, bpe
from builder.errors import ArchlabError
from tests.data.tokenizer_files import CORPUS, make_file

TEXTS = [
    "",
    "plain",
    "the cat sat on the mat",
    "👩‍👩‍👧‍👦 family, flag 🇨🇭, tone 👍🏽",
    "中文字符：你好，世界。𠜎",
    "e\u0301 n\u0303 a\u0308\u0323 combining",
    "  spaces\t\ttabs\r\n\nlines  ",
    "literal <eos> and <pad> and </s> are text",
    "\x00\x01\x7f\x80ÿ",
    "שלום עולם مرحبا",
]


@pytest.fixture(
    params=[*(name for name in registry.names("tokenizer") if name != "symbols"), "file with byte fallback"]
)
def made(request, tmp_path):
    """(tokenizer, config) of every kind that reads any text."""
    name, _, special = request.param.partition(" ")
    knobs = {"file": {"path": str(tmp_path / "made.json")}, "bpe": {"vocab_size": 400}}.get(name, {})
    if name == "file":
        make_file(tmp_path / "made.json", fallback=bool(special))
    cls = registry.find("tokenizer", name)
    config = cls.Config(name=name, **knobs)
    return cls.prepare(config, CORPUS, tmp_path / "cache"), config


@pytest.mark.parametrize("text", TEXTS)
def test_round_trip(made, text):
    tokenizer, _ = made
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert not set(ids) & set(tokenizer.specials.values())


def test_ids_and_specials(made):
    tokenizer, config = made
    assert isinstance(tokenizer, Tokenizer) and type(config).component is type(tokenizer)
    assert len(tokenizer) <= config.size
    assert tokenizer.eos != tokenizer.pad
    assert {tokenizer.eos, tokenizer.pad} <= set(tokenizer.specials.values())
    assert len(set(tokenizer.specials.values())) == len(tokenizer.specials)
    assert all(0 <= id < len(tokenizer) for id in tokenizer.specials.values())
    assert tokenizer.decode([tokenizer.eos, *tokenizer.encode("a cat"), tokenizer.pad, tokenizer.eos]) == "a cat"
    assert max(max(tokenizer.encode(text), default=0) for text in TEXTS) < len(tokenizer)


def test_corpus_is_each_document_and_its_end(made):
    tokenizer, _ = made
    expected = []
    for text in TEXTS:
        expected += [*tokenizer.encode(text), tokenizer.eos]
    row = tokenizer.encode_corpus(TEXTS)
    assert row.dtype == torch.int64 and row.dim() == 1 and row.tolist() == expected
    assert tokenizer.encode_corpus([""]).tolist() == [tokenizer.eos]
    assert torch.equal(Tokenizer.encode_corpus(tokenizer, TEXTS), row)  # the contract's own slow way


@pytest.mark.parametrize("text", TEXTS)
def test_streaming_shows_whole_characters_only(made, text):
    tokenizer, _ = made
    stream, ids = tokenizer.stream(), tokenizer.encode(text)
    shown = ""
    for id in ids:
        shown += stream.push(id)
        assert text.startswith(shown)
    assert shown + stream.flush() == text
    assert stream.flush() == ""


def test_streaming_keeps_up_with_the_bytes():
    """Independent oracle: Python's incremental UTF-8 decoder tells what is certain after each byte."""
    tokenizer = registry.find("tokenizer", "bytes")()
    for text in TEXTS:
        stream, oracle = tokenizer.stream(), codecs.getincrementaldecoder("utf-8")()
        for byte in text.encode():
            assert stream.push(byte) == oracle.decode(bytes([byte]))


def test_a_character_cut_short_comes_out_at_flush_only(made):
    tokenizer, _ = made
    ids = tokenizer.encode("ab\N{GRINNING FACE}")
    stream = tokenizer.stream()
    shown = "".join(stream.push(id) for id in ids[:-1])
    assert shown == "ab"
    assert set(stream.flush()) == {"\ufffd"}


def test_any_ids_stream_to_their_decoding(made, request):
    if "fallback" in request.node.name:
        pytest.skip("its decoder revokes bytes it has given, so no stream of it can equal the decoding of garbage")
    tokenizer, _ = made
    draw = random.Random(0)
    for _ in range(100):
        ids = [draw.randrange(len(tokenizer)) for _ in range(30)]
        stream = tokenizer.stream()
        assert "".join(stream.push(id) for id in ids) + stream.flush() == tokenizer.decode(ids)


def test_negative_control_decoding_ids_alone_breaks_characters():
    tokenizer = registry.find("tokenizer", "bytes")()
    assert "".join(tokenizer.decode([id]) for id in tokenizer.encode("你")) != "你"


def test_a_revoked_run_of_bytes_does_not_stop_the_stream():
    def decode(ids):  # like byte fallback: a run is text if all of it is, or else all of it is broken
        try:
            return bytes(ids).decode()
        except UnicodeDecodeError:
            return "".join(chr(id) if id < 128 and id != 10 else "\ufffd" for id in ids)

    stream = StreamDecoder(decode)
    assert stream.push(10) == "\n"
    assert stream.push(0xE4) == ""
    assert stream.push(ord("x")) == "\ufffdx"


def test_saved_and_loaded_it_is_the_same(made, tmp_path):
    tokenizer, config = made
    run = tmp_path / "run"
    run.mkdir()
    tokenizer.save(run)
    for file in tmp_path.glob("*.json"):
        file.unlink()  # neither the original nor a cache is needed
    loaded = type(tokenizer).load(config, run)
    assert [loaded.encode(text) for text in TEXTS] == [tokenizer.encode(text) for text in TEXTS]
    assert (loaded.fingerprint, loaded.specials, len(loaded)) == (
        tokenizer.fingerprint,
        tokenizer.specials,
        len(tokenizer),
    )
    assert (loaded.eos, loaded.pad) == (tokenizer.eos, tokenizer.pad)


@pytest.mark.parametrize("name", ["bpe", "file"])
@pytest.mark.parametrize("content", [None, "{", '{"version": "1.0"}'])
def test_a_run_folder_without_its_tokenizer(tmp_path, name, content):
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    cls = registry.find("tokenizer", name)
    config = cls.Config(name=name, **({"path": "gone.json"} if name == "file" else {}))
    with pytest.raises(ArchlabError, match=r"tokenizer: found '.*tokenizer\.json'[\s\S]*fix:  restore"):
        cls.load(config, tmp_path)


def prepare_bpe(cache, texts=CORPUS, **knobs):
    return bpe.Bpe.prepare(bpe.Bpe.Config(name="bpe", **knobs), texts, cache)


def test_bpe_is_trained_once_per_text_and_setting(tmp_path, monkeypatch):
    trained = []
    true_train = bpe._train
    monkeypatch.setattr(bpe, "_train", lambda *inputs: trained.append(1) or true_train(*inputs))
    first, again = prepare_bpe(tmp_path, vocab_size=300), prepare_bpe(tmp_path, vocab_size=300)
    assert len(trained) == 1 and first.fingerprint == again.fingerprint
    assert first.encode("the cat") == again.encode("the cat")
    for knobs in (
        {"vocab_size": 301},
        {"vocab_size": 300, "min_frequency": 3},
        {"vocab_size": 300, "texts": CORPUS[:2]},
    ):
        prepare_bpe(tmp_path, **knobs)
    prepare_bpe(
        tmp_path, vocab_size=300, texts=[CORPUS[0] + CORPUS[1], CORPUS[2]]
    )  # the same characters, other documents
    assert len(trained) == 5 and len(list(tmp_path.rglob("*.json"))) == 5
    assert not list(tmp_path.rglob(".*"))  # no drafts left


@pytest.mark.parametrize("keep", [0, 1, 500])
def test_a_torn_cache_file_is_made_anew(tmp_path, keep):
    whole = prepare_bpe(tmp_path, vocab_size=300)
    (file,) = tmp_path.rglob("*.json")
    content = file.read_text()
    file.write_text(content[:keep])
    assert prepare_bpe(tmp_path, vocab_size=300).fingerprint == whole.fingerprint
    assert file.read_text() == content


def test_a_cache_that_cannot_be_written_costs_a_warning_only(tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="was not cached"):
        tokenizer = prepare_bpe(tmp_path / "cache", vocab_size=300)
    assert tokenizer.decode(tokenizer.encode("fine")) == "fine"


def test_bpe_merges_and_never_exceeds_its_size(tmp_path):
    assert len(prepare_bpe(tmp_path, vocab_size=258)) == 258
    large = prepare_bpe(tmp_path, vocab_size=5000)
    assert 258 < len(large) < 5000 == bpe.Bpe.Config(name="bpe", vocab_size=5000).size
    assert len(large.encode("the cat sat on the mat")) < len(
        prepare_bpe(tmp_path, vocab_size=258).encode("the cat sat on the mat")
    )


@pytest.mark.parametrize("knobs", [{"vocab_size": 257}, {"vocab_size": "1024"}, {"min_frequency": 0}, {"size": 300}])
def test_bpe_config_is_strict(knobs):
    with pytest.raises(ValidationError):
        bpe.Bpe.Config(name="bpe", **knobs)


SAYS = {"symbols": "1 2 3"}  # what each reads; the others read anything


@pytest.mark.parametrize("name", registry.names("tokenizer"))
def test_special_tokens_that_are_asked_for(name, tmp_path):
    make_file(tmp_path / "made.json")
    knobs = {"file": {"path": str(tmp_path / "made.json")}, "bpe": {"vocab_size": 300}, "symbols": {"n_symbols": 9}}
    cls, text = registry.find("tokenizer", name), SAYS.get(name, "literal <mask>")

    def made(*specials):
        config = cls.Config(name=name, specials=specials, **knobs.get(name, {}))
        return cls.prepare(config, CORPUS, tmp_path / "cache"), config

    plain, _ = made()
    tokenizer, config = made("mask", "sentinel_0")
    assert tokenizer.named == {"mask": len(plain), "sentinel_0": len(plain) + 1} and plain.named == {}
    assert len(tokenizer) == len(plain) + 2 <= config.size == made()[1].size + 2
    assert tokenizer.specials == plain.specials | {"<mask>": len(plain), "<sentinel_0>": len(plain) + 1}
    assert tokenizer.encode(text) == plain.encode(text)  # what is written in a text is text
    assert tokenizer.decode([*plain.encode(text), *tokenizer.named.values()]) == text
    assert tokenizer.fingerprint != plain.fingerprint == made()[0].fingerprint
    tokenizer.save(tmp_path)
    loaded = cls.load(config, tmp_path)
    assert (loaded.named, loaded.specials, len(loaded)) == (tokenizer.named, tokenizer.specials, len(tokenizer))
    assert loaded.fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize(("token", "name"), [("[MASK]", "mask"), ("<extra_id_3>", "sentinel_3"), ("<|mask|>", "mask")])
def test_a_special_token_of_the_file_is_taken(tmp_path, token, name):
    make_file(tmp_path / "made.json")
    backend = tokenizers.Tokenizer.from_file(str(tmp_path / "made.json"))
    backend.add_special_tokens([token, "<other>"])
    backend.save(str(tmp_path / "made.json"))
    cls = registry.find("tokenizer", "file")
    plain, asked = (cls.Config(name="file", path=str(tmp_path / "made.json"), specials=some) for some in ((), (name,)))
    found = cls.prepare(asked, [], tmp_path)
    assert found.named == {name: backend.token_to_id(token)} and len(found) == len(cls.prepare(plain, [], tmp_path))
