"""What stands before a text: nothing, or the token that a tokenizer's own file puts there, once (C30)."""

import pytest
import tokenizers
from tokenizers.processors import TemplateProcessing

from builder import registry
from builder.errors import ConfigError

WORDS = {"<s>": 0, "</s>": 1, "<pad>": 2, "a": 3, "b": 4, "<x>": 5}


@pytest.fixture
def made(tmp_path):
    """made(template, **knobs): the tokenizer of a file whose own template is that."""

    def make(template=None, **knobs):
        backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="<x>"))
        backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        backend.add_special_tokens(["<s>", "</s>", "<pad>"])
        if template is not None:
            special = [(token, WORDS[token]) for token in ("<s>", "</s>")]
            backend.post_processor = TemplateProcessing(single=template, special_tokens=special)
        backend.save(str(tmp_path / "tokenizer.json"))
        kind = registry.find("tokenizer", "file")
        return kind.prepare(kind.Config(name="file", path=str(tmp_path / "tokenizer.json"), **knobs), [], tmp_path)

    return make


@pytest.mark.parametrize(
    ("template", "bos", "row"),
    [(None, None, [3, 4, 1, 4, 1]), ("$A </s>", None, [3, 4, 1, 4, 1]), ("<s> $A </s>", 0, [0, 3, 4, 1, 0, 4, 1])],
)
def test_a_text_begins_as_the_file_says(made, template, bos, row):
    tokenizer = made(template)
    assert tokenizer.bos == bos and tokenizer.start == (1 if bos is None else bos)
    assert tokenizer.encode_corpus(["a b", "b"]).tolist() == row == [*tokenizer.whole("a b"), *tokenizer.whole("b")]
    assert tokenizer.encode("a b") == [3, 4] and tokenizer.decode(row) == "a b b"
    assert tokenizer.whole("<s> a").count(0) == (bos is not None)  # what is written in a text is text


def test_a_target_begins_as_the_config_says(made):
    assert made("<s> $A </s>", start="</s>").start == 1
    assert made("<s> $A </s>").fingerprint != made("<s> $A </s>", start="</s>").fingerprint
    with pytest.raises(ConfigError, match=r"tokenizer\.start"):
        made(start="<y>")
    with pytest.raises(ConfigError, match="puts 2 tokens before a text"):
        made("<s> <s> $A")


def test_a_target_has_one_beginning(made, tmp_path):
    """Of a pair the target stands behind the start, and behind `bos` too where that is another token."""
    from builder.data.records import record_corpus
    from builder.data.samples import Shape

    kind = registry.find("tokenizer", "file")
    records = [("a", "b a"), ("b", "a"), ("a b", "b"), ("b b", "a a")]
    for start, first in ((None, [0]), ("</s>", [1, 0])):
        made("<s> $A </s>")
        tokenizer = kind.Config(name="file", path=str(tmp_path / "tokenizer.json"), start=start)
        config = type("Config", (), {"kind": "pairs", "val_fraction": 0.3, "overlong": "refuse"})
        corpus = record_corpus(records, config, tokenizer, Shape(8), None)
        for samples in (corpus.train, corpus.val):
            batch = samples.rows(samples.every())
            assert all(row[: len(first)] == first and row.count(0) == 1 for row in batch["tokens"].tolist())
            assert all(row[0] == 0 for row in batch["source"].tolist())
