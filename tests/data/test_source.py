"""Sources: what they read, in which order, and what they say when they can't."""

import os
import sys

import pytest
from pydantic import ValidationError

from builder import registry
from builder.data.source import Source
from builder.errors import ArchlabError


def read(name, **knobs):
    source = registry.find("data", name)
    return source(source.Config(name=name, **knobs)).documents()


def refusal(**knobs):
    with pytest.raises(ArchlabError) as caught:
        read("text", **knobs)
    text = str(caught.value)
    assert "data.path" in text and "rule:" in text and "fix:" in text
    return text


@pytest.mark.parametrize("name", registry.names("data"))
def test_every_source_keeps_the_contract(name):
    source = registry.find("data", name)
    assert issubclass(source, Source) and issubclass(source.Config, Source.Config)
    assert source.Config.component is source


def test_python_docs_are_the_topics_by_name():
    from pydoc_data.topics import topics

    documents = read("python_docs")
    assert len(documents) == len(topics) > 50
    assert documents[0] == topics[min(topics)] and documents[-1] == topics[max(topics)]


def test_python_without_its_docs(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(ArchlabError, match=r"data\.name: found a source that needs [\s\S]*data=text data\.path="):
        read("python_docs")


def test_a_file_is_one_document_kept_to_the_byte(tmp_path):
    (tmp_path / "a.txt").write_bytes("one\r\ntwo é 你\n".encode())
    assert read("text", path=str(tmp_path / "a.txt")) == ["one\r\ntwo é 你\n"]


def test_a_folder_is_read_sorted_and_deep_without_hidden_files(tmp_path):
    for name in ("b.txt", "a.md", "sub/z.py", "sub/deep/c.rst", ".hidden", ".git/config", "sub/.secret"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "empty.txt").write_text("")
    assert read("text", path=str(tmp_path)) == ["a.md", "b.txt", "sub/deep/c.rst", "sub/z.py"]


def test_a_linked_folder_is_read_and_a_link_back_up_ends(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "x.txt").write_text("far")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "y.txt").write_text("near")
    (tmp_path / "home" / "link").symlink_to(tmp_path / "far")
    (tmp_path / "far" / "back").symlink_to(tmp_path / "home")
    assert read("text", path=str(tmp_path / "home")) == ["far", "near"]


def test_a_glob_selects(tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("b.txt", "a.md", "sub/c.txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "logo.png").write_bytes(b"\x89PNG\0")
    assert read("text", path=f"{tmp_path}/*.txt") == ["b.txt"]
    assert read("text", path=f"{tmp_path}/**/*.txt") == ["b.txt", "sub/c.txt"]


def test_a_name_with_brackets_is_a_file_if_it_exists(tmp_path):
    (tmp_path / "a[1].txt").write_text("odd name")
    assert read("text", path=str(tmp_path / "a[1].txt")) == ["odd name"]


def test_missing_path(tmp_path):
    text = refusal(path=str(tmp_path / "nothing.txt"))
    assert "nothing.txt" in text and "does not exist" in text


def test_no_match(tmp_path):
    (tmp_path / "a.txt").mkdir()  # a folder is no match
    assert "matches no file" in refusal(path=f"{tmp_path}/*.txt")
    assert "matches no file" in refusal(path=str(tmp_path / "a.txt"))


@pytest.mark.parametrize("content", ["", " \n\t\n"])
def test_empty_files(tmp_path, content):
    (tmp_path / "a.txt").write_text(content)
    assert "every file is empty (1 in all)" in refusal(path=str(tmp_path / "a.txt"))
    assert "every file is empty (1 in all)" in refusal(path=str(tmp_path))


def test_binary_files_are_named_with_the_offset(tmp_path):
    (tmp_path / "nul.bin").write_bytes(b"abc\0def")
    assert "nul.bin (binary: a NUL byte at offset 3)" in refusal(path=str(tmp_path / "nul.bin"))
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 au lait")
    assert "latin.txt (not UTF-8: byte 0xe9 at offset 3)" in refusal(path=str(tmp_path / "latin.txt"))


def test_a_folder_hides_no_binary_file(tmp_path):
    (tmp_path / "good.txt").write_text("good")
    for number in range(5):
        (tmp_path / f"{number}.bin").write_bytes(b"\0")
    text = refusal(path=str(tmp_path))
    assert "5 of 6 files" in text and "0.bin" in text and "2.bin" in text and "3.bin" not in text and "2 more" in text
    assert "*.txt" in text


def test_a_dangling_link_is_named(tmp_path):
    (tmp_path / "good.txt").write_text("good")
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    text = refusal(path=str(tmp_path))
    assert "gone.txt (can't be read: No such file or directory)" in text


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refusal(path=str(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_permission_denied(tmp_path):
    (tmp_path / "a.txt").write_text("secret")
    (tmp_path / "a.txt").chmod(0)
    assert "Permission denied" in refusal(path=str(tmp_path / "a.txt"))
    (tmp_path / "shut").mkdir(mode=0)
    assert "Permission denied" in refusal(path=str(tmp_path / "shut"))


def test_a_folder_that_fails_to_list_is_not_passed_over(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("fine")
    (tmp_path / "shut").mkdir()
    true_scandir = os.scandir

    def scandir(path):
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", str(path))
        return true_scandir(path)

    monkeypatch.setattr(os, "scandir", scandir)
    text = refusal(path=str(tmp_path))
    assert "shut" in text and "Permission denied" in text


@pytest.mark.parametrize("knobs", [{}, {"path": ""}, {"path": 3}, {"path": "x", "val_fraction": 0.0},
                                   {"path": "x", "val_fraction": 1.0}, {"path": "x", "split": "half"},
                                   {"path": "x", "paht": "y"}])  # fmt: skip
def test_config_is_strict(knobs):
    with pytest.raises(ValidationError):
        registry.find("data", "text").Config(name="text", **knobs)
