"""Rows in files of one's own: every kind of file and of row, no network, and what is wrong by file, row and column."""

import json
import socket

import pytest
from pydantic import ValidationError

from builder.data import ValBatches
from builder.errors import ArchlabError
from tests.data.runs import config, prepared, said

TEXTS = said(30)
BYTES = config("tokenizer", "bytes")
ROWS = {
    "text": [{"text": text} for text in TEXTS],
    "pairs": [{"source": text, "target": text[::-1]} for text in TEXTS],
    "labelled": [{"text": text, "label": len(text) % 3} for text in TEXTS],
    "contrastive": [{"text": text, "other": text.upper()} for text in TEXTS],
}


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*given, **more):
        raise AssertionError("asked the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def write(file, rows):
    if file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif file.suffix == ".txt":
        file.write_text("".join(row["text"] + "\n" for row in rows))
    elif file.suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    else:
        sep = {".csv": ",", ".tsv": "\t"}[file.suffix]
        file.write_text(
            "\n".join(sep.join(f'"{value}"' for value in row) for row in [rows[0], *map(dict.values, rows)])
        )
    return file


def corpus(cache, path, **knobs):
    return prepared(config("data", "files", path=str(path), **knobs), BYTES, train_length=80, cache=cache)


def texts_of(held):
    """What stands in the rows of both splits."""
    keys = ("tokens", "source", "other")
    batches = [*ValBatches(held.train, batch=4), *ValBatches(held.val, batch=4)]
    return sorted(
        tuple(held.tokenizer.decode(batch[key][row]) for key in keys if key in batch)
        for batch in batches
        for row in range(len(batch["tokens"]))
    )


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv", ".parquet", ".txt"])
@pytest.mark.parametrize("form", ROWS)
def test_rows_of_every_kind_of_file(tmp_path, form, suffix):
    if suffix == ".txt" and form != "text":
        pytest.skip("a line of text is one text")
    more = {"packing": "padded"} if form == "text" else {}
    held = corpus(tmp_path, write(tmp_path / f"rows{suffix}", ROWS[form]), form=form, **more)
    order = {"pairs": ("target", "source"), "contrastive": ("text", "other")}.get(form, ("text",))
    assert held.kind == form
    assert texts_of(held) == sorted(tuple(row[key] for key in order) for row in ROWS[form])
    assert held.labels == (("0", "1", "2") if form == "labelled" else ())


def test_text_in_a_csv_that_looks_like_something_else(tmp_path):
    (tmp_path / "x.csv").write_text("id,said\n1,007\n2,NA\n3,1.50\n4,2020-01-01\n")
    held = corpus(tmp_path, tmp_path / "x.csv", columns=["said"], packing="padded", val_fraction=0.4)
    assert texts_of(held) == [("007",), ("1.50",), ("2020-01-01",), ("NA",)]


def test_files_of_a_folder_in_order(tmp_path):
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "b.jsonl", ROWS["pairs"][10:])
    write(tmp_path / "in" / "a.csv", ROWS["pairs"][:10])
    held, again = (corpus(tmp_path / "cache", tmp_path / "in", form="pairs") for _ in range(2))
    whole = corpus(tmp_path / "cache", write(tmp_path / "whole.jsonl", ROWS["pairs"]), form="pairs")
    assert held.fingerprint == again.fingerprint == whole.fingerprint


@pytest.mark.parametrize(
    ("name", "content", "knobs", "told"),
    [
        ("x.jsonl", '{"text": "a"}\n{"text" "b"}\n', {}, r"x\.jsonl, which can't be read: line 2: Expecting"),
        ("x.jsonl", "", {}, r"x\.jsonl, which can't be read: it is empty"),
        ("x.csv", "text,b\n1,2\n3,4,5\n", {}, r"x\.csv, which can't be read: line 3 has 3 fields, and the header 2"),
        ("x.csv", 'text,b\na, b,c\nd, e,f\n', {}, "line 2 has 3 fields"),  # in all rows, it was read as an index
        ("x.csv", 'text,b\n"c\nd",e\n\nf\n', {}, "line 5 has 1 field,"),
        ("x.tsv", "text\tb\n1\t2\t3\n", {}, r"line 2 has 3 fields, and the header 2: text, b; a text with '\\t'"),
        ("x.csv", "text,text\n1,2\n", {}, "each column has a name of its own"),
        ("x.csv", 'text,b\n"1,2\n', {}, "line 2: unexpected end of data"),
        ("x.parquet", "PAR?", {}, r"x\.parquet, which can't be read"),
        ("x.doc", "text", {}, r"x\.doc, whose kind its name doesn't say"),
        ("x.txt", "\n\n", {}, "no rows with text"),
        ("x.jsonl", '{"txt": "a", "n": 1}\n', {}, r"data\.columns: found 'text', .*it has txt, n[\s\S]*\[txt\]"),
        ("x.jsonl", '{"text": "a"}\n{"text": null}\n', {}, r"x\.jsonl, row 2: 'text' holds None \(NoneType\)"),
        ("x.jsonl", '{"text": "a"}\n\n{"n": 1}\n', {}, r"x\.jsonl, row 2: it has no field 'text'"),
        ("x.json", '[{"text": "a"}, {"n": 1}]', {}, r"x\.json, row 2: it has no field 'text'"),
        ("x.jsonl", '{"text": "a"}\n{"text": 5}\n', {}, r"row 2: 'text' holds 5 \(int\)"),
        ("x.csv", "source,target\na,b\nc,\n", {"form": "pairs"}, r"row 2: 'target' holds '' \(str\)"),
        ("x.jsonl", '{"text": "a", "label": 0.5}\n', {"form": "labelled"}, r"row 1: 'label' holds 0\.5 \(float\)"),
        ("x.jsonl", '{"messages": "hi"}\n', {"form": "chat"}, r"row 1: 'messages' holds 'hi'"),
        ("x.jsonl", '{"messages": [{"role": "bot", "content": "hi"}]}', {"form": "chat"}, "as message 1 {"),
        ("x.jsonl", '{"messages": [{"role": "user", "content": "hi"}]}\n', {"form": "chat"}, "without an answer"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path, capfd, name, content, knobs, told):
    (tmp_path / name).write_text(content)
    with pytest.raises(ArchlabError, match=told):
        corpus(tmp_path, tmp_path / name, **knobs)
    assert capfd.readouterr() == ("", "")  # the library says nothing beside


def test_a_hub_that_is_out_of_reach(tmp_path):
    data = config("data", "files", hub="nobody/nothing")
    with pytest.raises(ArchlabError, match=r"data\.hub: found 'nobody/nothing', part 'train'"):
        prepared(data, BYTES, train_length=8, cache=tmp_path)


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"path": "x", "hub": "y"},
        {"path": "x", "form": "pairs", "columns": ["a"]},
        {"path": "x", "form": "pairs", "packing": "padded"},
        {"path": "x", "overlong": "drop"},
        {"path": "x", "template": "t"},
        {"path": "x", "form": "chat", "packing": "stream"},
    ],
)
def test_knobs_that_do_not_go_together(knobs):
    with pytest.raises(ValidationError):
        config("data", "files", **knobs)
