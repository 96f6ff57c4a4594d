"""The whole way from two configs to two rows of tokens, and what it refuses."""

import subprocess
import sys
from pathlib import Path

import pytest
import tokenizers
import torch
from tokenizers import models, pre_tokenizers

from builder import registry
from builder.data import cache_folder
from builder.errors import ArchlabError
from builder.whole import write_whole
from tests.data.runs import config, prepared


def text(tmp_path, *documents, **knobs):
    for number, document in enumerate(documents):
        (tmp_path / f"{number}.txt").write_bytes(document.encode())
    return config("data", "text", path=f"{tmp_path}/*.txt", **knobs)


BYTES = config("tokenizer", "bytes")


def test_tokens_of_both_splits_by_hand(tmp_path):
    corpus = prepared(text(tmp_path, "abcdef", "ghé"), BYTES, train_length=3, cache=tmp_path)  # 9 characters: 8 and 1
    assert corpus.train.first(10**9).tolist() == [*b"abcdef", 256, *b"gh", 256]
    assert corpus.val.first(10**9).tolist() == [0xC3, 0xA9, 256]
    assert corpus.val_bytes_per_token == 2 / 3 and corpus.largest_id == 256
    assert corpus.train.first(10**9).dtype == corpus.val.first(10**9).dtype == torch.int64


@pytest.mark.parametrize("name", ["bytes", "bpe"])
def test_python_docs(tmp_path, name):
    knobs = {"vocab_size": 300} if name == "bpe" else {}
    corpus = prepared(
        config("data", "python_docs"), config("tokenizer", name, **knobs), train_length=64, cache=tmp_path
    )
    assert corpus.largest_id < len(corpus.tokenizer)
    val = corpus.tokenizer.decode(corpus.val.first(10**9).tolist())
    assert corpus.val_bytes_per_token == pytest.approx(len(val.encode()) / len(corpus.val.first(10**9)))
    documents = registry.find("data", "python_docs")(config("data", "python_docs")).documents()
    ends = int(
        (corpus.train.first(10**9) == corpus.tokenizer.eos).sum()
        + (corpus.val.first(10**9) == corpus.tokenizer.eos).sum()
    )
    assert ends == len(documents)
    assert 0.05 < len(val) / sum(map(len, documents)) < 0.3


def test_the_tokenizer_is_trained_on_the_training_text_only(tmp_path):
    source = text(tmp_path, "abab " * 40, "xyxy " * 40, val_fraction=0.5)
    corpus = prepared(source, config("tokenizer", "bpe", vocab_size=300), train_length=4, cache=tmp_path / "c")
    assert len(corpus.tokenizer.encode("abab")) == 1 and len(corpus.tokenizer.encode("xyxy")) == 4


def test_fingerprint_changes_with_text_split_and_tokenizer(tmp_path):
    def mark(*documents, tokenizer=BYTES, **knobs):
        for file in tmp_path.glob("*.txt"):
            file.unlink()
        return prepared(
            text(tmp_path, *documents, **knobs), tokenizer, train_length=2, cache=tmp_path / "c"
        ).fingerprint

    bpe = config("tokenizer", "bpe", vocab_size=300)
    same = mark("abcdefgh", "ijklmnop")
    assert same == mark("abcdefgh", "ijklmnop")
    others = [
        mark("abcdefgh", "ijklmnoq"),
        mark("abcdefg", "hijklmnop"),
        mark("abcdefgh", "ijklmnop", val_fraction=0.5),
        mark("abcdefgh", "ijklmnop", tokenizer=bpe),
    ]
    assert len({same, *others}) == 5


def refusal(source, tokenizer, train_length, cache):
    with pytest.raises(ArchlabError) as caught:
        prepared(source, tokenizer, train_length=train_length, cache=cache)
    return str(caught.value)


def test_a_training_split_too_short_for_one_window(tmp_path):
    source = text(tmp_path, "0123456789")  # 9 bytes and the end: 10 training tokens
    assert len(prepared(source, BYTES, train_length=9, cache=tmp_path).train.first(10**9)) == 10
    message = refusal(source, BYTES, 10, tmp_path)
    assert "model.train_length: found 10, and the training split has 10 tokens" in message
    assert "model.train_length + 1 = 11" in message and "model.train_length=9" in message and "data.path" in message


def test_a_file_of_one_character(tmp_path):
    message = refusal(text(tmp_path, "x"), BYTES, 4, tmp_path)
    assert "data.val_fraction: found 0.1" in message and "no validation text" in message


def word_level(path):
    backend = tokenizers.Tokenizer(models.WordLevel({"<unk>": 0, "a": 1, "</s>": 2, "filler": 3}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(["</s>"])
    backend.save(str(path))
    return str(path)


def test_a_split_of_a_single_token(tmp_path):
    path = word_level(tmp_path / "t.json")  # white space alone gives no id: only the end is left
    source = text(tmp_path, "a a a a    ", val_fraction=0.2)
    message = refusal(source, config("tokenizer", "file", path=path), 1, tmp_path)
    assert "validation split has 1 token" in message and "at least 2 tokens" in message and "data.path" in message


def test_text_that_encodes_to_the_padding_id(tmp_path):
    path = word_level(tmp_path / "t.json")
    source = text(tmp_path, "a filler a a a a filler a a a", val_fraction=0.2)
    message = refusal(source, config("tokenizer", "file", path=path, pad="filler"), 2, tmp_path)
    assert "tokenizer.pad: found id 3" in message and "found 2 of them" in message
    assert prepared(source, config("tokenizer", "file", path=path), train_length=2, cache=tmp_path).largest_id == 3


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "archlab"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert cache_folder() == tmp_path / "me" / ".cache" / "archlab"


def test_a_failed_write_leaves_the_old_file_and_no_draft(tmp_path):
    write_whole(tmp_path / "a" / "x.json", "old\r\n")
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "a" / "x.json", "new \ud800")
    assert [file.name for file in (tmp_path / "a").iterdir()] == ["x.json"]
    assert (tmp_path / "a" / "x.json").read_bytes() == b"old\r\n"


def test_the_room_imports_no_trainer_and_no_logger():
    code = "import sys, builder.data; print(*sorted({'lightning', 'wandb', 'tokenizers'} & set(sys.modules)))"
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""


@pytest.mark.parametrize("room", ["data", "tokenizer"])
def test_every_name_has_its_yaml(room):
    folder = Path(__file__).parents[2] / "conf" / room
    for name in registry.names(room):
        lines = (folder / f"{name}.yaml").read_text().splitlines()
        assert lines[0].startswith("# ") and lines[1] == f"name: {name}"
