"""The tokenizer that is read from a file: names, sizes, what is switched off, and damaged files."""

import pytest
import tokenizers
from pydantic import ValidationError
from tokenizers import processors

from builder import registry
from builder.errors import ArchlabError
from tests.data.tokenizer_files import make_file


def file_config(path, **knobs):
    return registry.find("tokenizer", "file").Config(name="file", path=str(path), **knobs)


def open_file(path, **knobs):
    config = file_config(path, **knobs)
    return type(config).component.prepare(config, [], path.parent)


def test_file_finds_the_usual_names(tmp_path):
    tokenizer = open_file(make_file(tmp_path / "t.json", ("<unk>", "[PAD]", "<|endoftext|>")))
    assert (tokenizer.pad, tokenizer.eos) == (1, 2) and tokenizer.specials == {
        "<unk>": 0,
        "[PAD]": 1,
        "<|endoftext|>": 2,
    }


def test_file_takes_the_names_it_is_given(tmp_path):
    path = make_file(tmp_path / "t.json", ("</s>", "<stop>", "<fill>"))
    tokenizer = open_file(path, eos="<stop>", pad="<fill>")
    assert (tokenizer.eos, tokenizer.pad) == (1, 2)
    assert open_file(make_file(tmp_path / "u.json", ("</s>", "<eos>")), pad="<eos>").eos == 0


def test_file_without_padding_gets_one_behind_its_last_id(tmp_path):
    path = make_file(tmp_path / "t.json", ("</s>",))
    count = tokenizers.Tokenizer.from_file(str(path)).get_vocab_size()
    tokenizer = open_file(path)
    assert tokenizer.pad == count and len(tokenizer) == file_config(path).size == count + 1
    assert open_file(make_file(tmp_path / "u.json", ("<pad>",)), eos="<pad>").pad != 0


def test_file_size_follows_the_file(tmp_path):
    path = make_file(tmp_path / "t.json", ("</s>", "<pad>"))
    before = file_config(path).size
    make_file(path, ("</s>", "<pad>", "<one>", "<two>"), fallback=True)
    assert file_config(path).size == len(open_file(path)) != before


def test_file_ignores_truncation_padding_and_templates(tmp_path):
    path = make_file(tmp_path / "t.json")
    backend = tokenizers.Tokenizer.from_file(str(path))
    expected = backend.encode("the cat sat on the mat " * 9).ids
    backend.enable_truncation(4)
    backend.enable_padding(length=500)
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 0)])
    backend.save(str(path))
    assert len(tokenizers.Tokenizer.from_file(str(path)).encode("the cat sat on the mat " * 9).ids) == 500  # control
    assert open_file(path).encode("the cat sat on the mat " * 9) == expected


@pytest.mark.parametrize(
    ("content", "found"), [(None, "No such file"), ("{", "no tokenizer.json"), ('{"a": 1}', "no tokenizer.json")]
)
def test_file_missing_or_damaged(tmp_path, content, found):
    path = tmp_path / "t.json"
    if content is not None:
        path.write_text(content)
    for attempt in (lambda: open_file(path), lambda: file_config(path).size):
        with pytest.raises(ArchlabError) as caught:
            attempt()
        assert "tokenizer.path" in str(caught.value) and found in str(caught.value) and "t.json" in str(caught.value)


def test_file_that_is_a_folder_or_binary(tmp_path):
    with pytest.raises(ArchlabError, match=r"tokenizer\.path[\s\S]*directory"):
        open_file(tmp_path)
    (tmp_path / "t.json").write_bytes(b"\xff\xfe\0")
    with pytest.raises(ArchlabError, match=r"tokenizer\.path[\s\S]*no tokenizer\.json"):
        open_file(tmp_path / "t.json")


@pytest.mark.parametrize(
    ("knobs", "path", "fix"),
    [
        ({}, "tokenizer.eos: found null", "tokenizer.eos="),
        ({"eos": "<stpo>"}, "tokenizer.eos: found '<stpo>'", "tokenizer.eos='<stop>'"),
        ({"eos": "<stop>", "pad": "<fil>"}, "tokenizer.pad: found '<fil>'", "tokenizer.pad='<fill>'"),
    ],
)
def test_file_without_the_tokens_named(tmp_path, knobs, path, fix):
    file = make_file(tmp_path / "t.json", ("<stop>", "<fill>"))
    with pytest.raises(ArchlabError) as caught:
        open_file(file, **knobs)
    assert path in str(caught.value) and fix in str(caught.value) and "<stop>, <fill>" in str(caught.value)


def test_file_with_one_token_for_both():
    with pytest.raises(ValidationError, match="must differ"):
        file_config("t.json", eos="</s>", pad="</s>")
