"""Words with tags: a word's first token has its tag and nothing else has one; rows are padded, cut off and refused."""

import json

import pytest
import torch

from builder import compose, load
from builder.data import cache_folder, prepare
from builder.errors import ConfigError
from tests.tiny_run import rows, trained

NAMES, VERBS = ("Ada", "Bo", "Cleo"), ("sees", "hears", "is")
ROWS = [
    {"words": [name, verb, "it", str(n)], "tags": ["N", "V", "O", 7]}
    for n in range(12)
    for name in NAMES
    for verb in VERBS
]
TAGS = ("7", "N", "O", "V")


def config(path, *more):
    kinds = ["model=encoder", "objective=classification", "model/head=token_classifier", "model.head.n_classes=4"]
    return [*kinds, "model.tie_embeddings=false", "data=files", f"data.path={path}", "data.form=tagged", *more]


@pytest.fixture
def written(tmp_path):
    def write(lines):
        file = tmp_path / "tagged.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return file

    return write


def test_the_first_token_of_a_word_has_its_tag(written):
    corpus = prepare(load(compose(config(written(ROWS)))), cache=cache_folder())
    assert (corpus.kind, corpus.labels) == ("tagged", TAGS)
    for samples in (corpus.train, corpus.val):
        batch = samples.rows(samples.every())
        for ids, labels in zip(batch["tokens"].tolist(), batch["labels"].tolist(), strict=True):
            text = bytes(id for id in ids if id < 256).decode()
            words = text.split(" ")
            starts = [sum(len(word) + 1 for word in words[:place]) for place in range(len(words))]
            assert {place: label for place, label in enumerate(labels) if label >= 0} == dict(
                zip(starts, (TAGS.index(tag) for tag in ("N", "V", "O", "7")), strict=True)
            )
        assert batch["labels"].shape == batch["tokens"].shape
    sides = ({tuple(row) for row in s.rows(s.every())["tokens"].tolist()} for s in (corpus.train, corpus.val))
    train, val = sides
    assert train and val and not train & val


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([{"words": ["a", "b"], "tags": ["x"]}, *ROWS], "2 words and 1 tags"),
        ([{"words": ["a"], "tags": ["x"]}, {"words": ["b"], "tags": ["x"]}], "at least 2 tags"),
        ([{"words": "a b", "tags": ["x", "y"]}], "a list of texts"),
    ],
)
def test_what_does_not_fit_is_refused(written, lines, said):
    with pytest.raises(ConfigError, match=said):
        prepare(load(compose(config(written(lines)))), cache=cache_folder())


def test_longer_rows_are_cut_or_left_out(written):
    path = written([*ROWS, {"words": ["long"] * 40, "tags": ["O"] * 40}])
    short = ["model.train_length=24", "model.deploy_length=24"]
    with pytest.raises(ConfigError, match=r"data\.overlong"):
        prepare(load(compose(config(path, *short))), cache=cache_folder())
    for how, count in (("truncate", len(ROWS) + 1), ("drop", len(ROWS))):
        corpus = prepare(load(compose(config(path, *short, f"data.overlong={how}"))), cache=cache_folder())
        assert len(corpus.train.every()) + len(corpus.val.every()) == count
        assert all(s.rows(s.every())["tokens"].shape[1] <= 24 for s in (corpus.train, corpus.val))


def test_a_tagger_learns(written, tmp_path):
    path = written(ROWS)
    more = ["model.train_length=32", "model.deploy_length=32", "trainer.max_steps=40", "optimizer.lr=1e-2"]
    run = trained(tmp_path, *config(path, *more, "trainer.val_check_interval=20", "sample.prompt=Ada sees it")).path
    found = [row for row in rows(run) if "val/f1" in row][-1]
    assert found["val/accuracy"] > 0.6 and "val/perplexity" not in found
    assert torch.tensor(found["val/loss"]).isfinite()
