"""Tokens on disk: the rows of the same text in memory, however many wrote them, and what is refused."""

import shlex
import shutil
from itertools import islice
from pathlib import Path

import pytest
import torch

from builder.compose import compose
from builder.data import TrainBatches, ValBatches
from builder.data.shards import MANIFEST, Manifest, open_shards, write_shard
from builder.data.tokenizing import tokenize
from builder.errors import ArchlabError
from recipes.tokenize import job
from tests.data.runs import config, prepared, said

BPE = config("tokenizer", "bpe", vocab_size=280)
KNOBS = {"val_fraction": 0.3, "split": "documents"}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with texts, and `one` and `two`: what one process made of them, and the job with two."""
    home = tmp_path_factory.mktemp("shards")
    (home / "texts").mkdir()
    for number, text in enumerate(said(60)):
        (home / "texts" / f"{number:02}.txt").write_text(text + " é")
    heard: list[tuple[int, int]] = []
    write(home, home / "one", tell=lambda *done: heard.append(done))
    done, total = zip(*heard, strict=True)
    assert list(done) == sorted(done) and set(total) == {done[-1]}
    knobs = ["data=text", f"data.path={home}/texts", *(f"data.{key}={value}" for key, value in KNOBS.items())]
    job(compose([*knobs, "tokenizer.vocab_size=280", f"path={home}/two", "workers=2", "characters=300"], "tokenize"))
    return home


def write(home, folder, tell=lambda *done: None):
    data = config("data", "text", path=str(home / "texts"), **KNOBS)
    tokenize(data, BPE, folder, cache=home / "cache", workers=1, characters=300, tell=tell)


def asked(folder):
    """The tokenizer that the manifest names."""
    words = shlex.split(Manifest.read(folder).asked(folder))
    return config("tokenizer", **compose(words)["tokenizer"])


def corpus(home, folder, *, tokenizer=None, packing="stream", length=12, **knobs):
    data = config("data", "tokens", path=str(home / folder), packing=packing, **knobs)
    chosen = tokenizer or asked(home / folder)
    return prepared(data, chosen, train_length=length, cache=home / "cache")


def test_shards_do_not_depend_on_the_number_of_processes(home):
    names = sorted(file.name for file in (home / "one").iterdir())
    assert {"train-00000.bin", "train-00001.idx", "val-00000.bin"} < set(names)
    for name in names:
        one, two = ((home / folder / name).read_bytes() for folder in ("one", "two"))
        assert one == two


@pytest.mark.parametrize("packing", ["stream", "documents", "padded"])
def test_rows_are_those_of_the_same_text_in_memory(home, packing):
    data = config("data", "text", path=str(home / "texts"), packing=packing, **KNOBS)
    memory = prepared(data, BPE, train_length=12, cache=home / "cache")
    disk = corpus(home, "two", packing=packing)
    assert disk.fingerprint == memory.fingerprint and disk.largest_id == memory.largest_id
    assert disk.val_bytes_per_token == memory.val_bytes_per_token
    for rows in (
        lambda held: islice(TrainBatches(held.train, batch=7, seed=1), 40),
        lambda held: ValBatches(held.val, batch=5),
    ):
        for one, other in zip(rows(memory), rows(disk), strict=True):
            assert one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)
    assert torch.equal(memory.train.first(50), disk.train.first(50))


def test_an_objective_s_special_tokens_need_no_other_shards(home):
    masked = asked(home / "one").model_copy(update={"specials": ("mask",)})
    made = corpus(home, "one", tokenizer=masked)
    assert made.tokenizer.named["mask"] > made.largest_id


@pytest.mark.parametrize(("dtype", "bytes_of_one"), [("uint16", 2), ("uint32", 4)])
def test_ids_across_shards(tmp_path, dtype, bytes_of_one):
    ids = torch.tensor([5, 9, 0, 65_535, 0, 7, 7, 7, 0, 1, 0])
    shards = [write_shard(tmp_path, name, part, 0, dtype) for name, part in (("a", ids[:5]), ("b", ids[5:]))]
    assert (tmp_path / "a.bin").stat().st_size == 5 * bytes_of_one
    held = open_shards(tmp_path, shards, dtype, verify=True)
    assert held.starts.tolist() == [0, 3, 5, 9] and held.lengths.tolist() == [3, 2, 4, 2]
    index = torch.tensor([[3, 4, 5], [10, 0, 6]])
    assert torch.equal(held.row[index], ids[index]) and torch.equal(held.row[2:7], ids[2:7])
    assert len(held.row) == 11 and int(held.row.max()) == 65_535


def refusal(home, folder, **knobs):
    with pytest.raises(ArchlabError) as caught:
        corpus(home, folder, **knobs)
    return str(caught.value)


def test_another_tokenizer_is_refused(home):
    message = refusal(home, "one", tokenizer=config("tokenizer", "bytes"))
    assert "tokenizer: found bytes, another one" in message
    assert f"tokenizer=file tokenizer.path={home}/one/tokenizer.json" in message


def test_a_shard_that_is_not_the_manifest_s_is_named(home, tmp_path):
    def broken(name, change):
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(home / "one", tmp_path / "copy")
        file: Path = tmp_path / "copy" / name
        change(file)
        return refusal(tmp_path, "copy", tokenizer=asked(home / "one"))

    def flip(file):
        data = bytearray(file.read_bytes())
        data[10] ^= 1
        file.write_bytes(data)

    assert "train-00001.bin of " in broken("train-00001.bin", lambda file: file.write_bytes(file.read_bytes()[:-2]))
    assert "train-00001.bin, whose content" in broken("train-00001.bin", flip)
    assert corpus(tmp_path, "copy", tokenizer=asked(home / "one"), verify=False).kind == "text"  # the size is right
    assert "val-00000.bin, which can't be read" in broken("val-00000.bin", Path.unlink)
    assert "train-00000.bin, whose content" in broken("train-00000.idx", flip)
    assert "shards.json is damaged at" in broken(MANIFEST, lambda file: file.write_text("{}"))
    assert "shards.json can't be read" in broken(MANIFEST, Path.unlink)


def test_what_can_not_be_tokenized(home, tmp_path):
    with pytest.raises(ArchlabError, match=r"path: found .*one', which holds shards"):
        write(home, home / "one")
    with pytest.raises(ArchlabError, match="data: found passages"):
        tokenize(config("data", "passages"), BPE, tmp_path / "x", cache=tmp_path, workers=1, characters=9, tell=print)
    (tmp_path / "file").write_text("")
    with pytest.raises(ArchlabError, match=r"path: .*below can't be written"):
        write(home, tmp_path / "file" / "below")
