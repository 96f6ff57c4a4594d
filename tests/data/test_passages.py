"""Passages of the embedded documentation: whose they are, and that none stands on both sides."""

from collections import Counter
from pydoc_data.topics import topics

import pytest

from builder.errors import ArchlabError
from tests.data.runs import config, prepared

PLAIN = {name: " ".join(text.split()) for name, text in topics.items()}


def read(**knobs):
    made = config("data", "passages", **knobs)
    return made.component(made).records()


def test_a_passage_is_of_its_topic_and_of_no_other():
    records = read(topics=5, length=120)
    assert len({passage for passage, _ in records}) == len(records) > 500
    for passage, topic in records:
        assert 16 < len(passage) <= 120 and [name for name in PLAIN if passage in PLAIN[name]] == [topic]
    everywhere = Counter(topic for _, topic in read(topics=None, length=120))
    assert {topic for _, topic in records} == {topic for topic, _ in everywhere.most_common(5)}


def test_two_passages_that_belong_together_stand_side_by_side():
    records = read(form="contrastive", topics=4)
    said = [passage for record in records for passage in record]
    assert len(set(said)) == len(said)  # so that no split of records divides one
    together = sum(any(f"{one} {other}" in text for text in PLAIN.values()) for one, other in records)
    assert together > 0.95 * len(records)  # but where a passage between them is left out


@pytest.mark.parametrize("form", ["labelled", "contrastive"])
def test_no_passage_is_trained_on_and_validated(tmp_path, form):
    data = config("data", "passages", form=form, topics=3)
    held = prepared(data, config("tokenizer", "bytes"), train_length=256, cache=tmp_path)
    sides = [{tuple(row.tolist()) for picks in side.every().split(50) for row in _rows(side, picks)}
             for side in (held.train, held.val)]  # fmt: skip
    assert held.kind == form and all(sides) and not sides[0] & sides[1]
    assert len(held.labels) == (3 if form == "labelled" else 0)


def _rows(side, picks):
    batch = side.rows(picks)
    return [row[row != side.pad] for key in ("tokens", "other") if key in batch for row in batch[key]]


def test_more_topics_than_there_are():
    with pytest.raises(ArchlabError, match=r"data\.topics: found 400, and \d\d topics have 2 passages of 200"):
        read(topics=400)
