"""Mixtures: each source's share, its own order, and rows that are the same for any rank and after any resume."""

from collections import Counter
from itertools import islice

import pytest
import torch
from pydantic import ValidationError

from builder.compose import compose
from builder.data import TrainBatches, ValBatches
from builder.data.samples.mixed import BLOCK, Mixed, shares
from builder.errors import ArchlabError, ConfigError
from builder.load import load
from tests.data.runs import config, prepared, said

BYTES = config("tokenizer", "bytes")


@pytest.fixture
def home(tmp_path):
    """Texts of small letters, of capitals and of digits."""
    for name, make in (
        ("small", str.lower),
        ("large", str.upper),
        ("digits", lambda text: "".join(map(str, map(ord, text)))),
    ):
        (tmp_path / name).mkdir()
        for number, text in enumerate(said(40)):
            (tmp_path / name / f"{number:02}.txt").write_text(make(text))
    return tmp_path


def mixture(home, weights, tokenizer=BYTES, length=8, **packings):
    sources = {
        name: {"name": "text", "path": str(home / name), "split": "documents", "packing": packings.get(name, "stream")}
        for name in ("small", "large", "digits")
    }
    data = config("data", "mixture", sources=sources, weights=weights)
    return prepared(data, tokenizer, train_length=length, cache=home / "cache")


def alone(home, name, length=8):
    data = config("data", "text", path=str(home / name), split="documents")
    return prepared(data, BYTES, train_length=length, cache=home / "cache")


def owner(row, text):
    letters = [char for char in text.decode(row) if char.isalnum()]
    return "digits" if letters[0].isdigit() else "small" if letters[0].islower() else "large"


def test_each_source_has_its_share_in_its_own_order(home):
    held = mixture(home, {"small": 5, "large": 2})  # and 1 of digits
    rows = [
        row for batch in islice(TrainBatches(held.train, batch=32, seed=3), 2 * BLOCK // 32) for row in batch["tokens"]
    ]
    found = [owner(row, held.tokenizer) for row in rows]
    for block in (found[:BLOCK], found[BLOCK:]):
        assert Counter(block) == {"small": 640, "large": 256, "digits": 128}
    assert len({tuple(found[start : start + 16]) for start in range(0, BLOCK, 16)}) > 50  # in no pattern
    for name in ("small", "digits"):
        order = alone(home, name).train
        expected = [row for step in range(5) for row in order.rows(order.picks(3, step, 64))["tokens"]]
        mine = [row for row, whose in zip(rows, found, strict=True) if whose == name]
        assert len(mine) >= 256 and all(map(torch.equal, mine[:256], expected))


def test_rows_are_the_same_for_any_batch_rank_and_resume(home):
    packings = {"large": "documents", "digits": "padded"}
    train, resumed = (mixture(home, {}, **packings).train for _ in range(2))
    picks = [train.picks(1, step, 24) for step in range(100)]
    assert torch.equal(torch.cat(picks), torch.cat([train.picks(1, step, 48) for step in range(50)]))
    for step in (43, 0, 99):
        batch, again = train.rows(picks[step]), resumed.rows(resumed.picks(1, step, 24))
        assert batch.keys() == again.keys() and all(torch.equal(batch[key], again[key]) for key in batch)
        for rank in range(3):
            part = train.rows(picks[step], slice(rank, None, 3))
            assert part.keys() == batch.keys() and all(torch.equal(batch[key][rank::3], part[key]) for key in batch)


def test_layouts_in_one_batch(home):
    held = mixture(home, {}, length=20, large="documents", digits="padded")
    batch = next(iter(TrainBatches(held.train, batch=48, seed=0)))
    tokens, real, segments = batch["tokens"], batch["attention_mask"], batch["segments"]
    assert torch.equal(real, tokens != held.tokenizer.pad) and torch.equal(real, segments > 0)
    for row, numbers in zip(tokens, segments, strict=True):
        apart = len(numbers[numbers > 0].unique())
        assert apart > 1 if owner(row, held.tokenizer) == "large" and (row == 256).sum() > 1 else apart == 1


def test_validation_reads_every_row_of_every_source(home):
    held = mixture(home, {"small": 9})
    rows = [row for batch in ValBatches(held.val, batch=5) for row in batch["tokens"]]
    apart = [
        row
        for name in ("small", "large", "digits")
        for batch in ValBatches(alone(home, name).val, batch=1)
        for row in batch["tokens"]
    ]
    assert sorted(row.tolist() for row in rows) == sorted(row.tolist() for row in apart)
    texts = [alone(home, name) for name in ("small", "large", "digits")]
    tokens = sum(len(text.val.first(10**9)) for text in texts)
    held_bytes = sum((text.val_bytes_per_token or 0) * len(text.val.first(10**9)) for text in texts)
    assert held.val_bytes_per_token == pytest.approx(held_bytes / tokens)


def test_a_tokenizer_trains_on_all_sources(home):
    held = mixture(home, {}, config("tokenizer", "bpe", vocab_size=300))
    words = {held.tokenizer.decode([id]) for id in range(len(held.tokenizer))}
    assert any(word.strip().islower() and len(word) > 2 for word in words)
    assert any(word.strip().isupper() and len(word) > 2 for word in words)


def test_shares():
    assert shares([1, 1, 1]) == [342, 341, 341] and shares([3, 1]) == [768, 256] and shares([1]) == [BLOCK]
    assert sum(shares([0.1, 0.7, 3.3, 11])) == BLOCK


def test_what_can_not_be_mixed(home):
    sources = {"small": {"name": "text", "path": str(home / "small")}}
    for more in ({"x": {"name": "copy", "n_symbols": 4}}, {"x": {"name": "passages"}}, {"x": {"name": "nothing"}}):
        with pytest.raises(ValidationError, match=r"sources\.x"):
            config("data", "mixture", sources=sources | more)
    for weights in ({"smal": 1}, {"small": 0.0}, {"small": 1e9}):
        with pytest.raises(ValidationError, match="weights"):
            config("data", "mixture", sources={**sources, "docs": {"name": "python_docs"}}, weights=weights)
    lost = config("data", "mixture", sources={"lost": {"name": "text", "path": str(home / "nowhere")}})
    with pytest.raises(ArchlabError, match=r"data\.sources\.lost\.path: found .*nowhere"):
        prepared(lost, BYTES, train_length=8, cache=home)


def test_a_source_is_added_on_the_command_line(home):
    more = [f"data.sources.mine={{name: text, path: {home}/small}}", "data.weights.mine=3"]
    spec = load(compose(["data=mixture", *more]))
    assert spec.data.weighed == [1, 3] and load(spec.to_dict()) == spec  # type: ignore[attr-defined]


def test_a_mixture_of_one_is_its_source(home):
    source = alone(home, "small").train
    mixed = Mixed([source], [1.0])
    assert torch.equal(mixed.picks(5, 7, 64), source.picks(5, 7, 64))


@pytest.mark.parametrize(
    ("override", "path", "rule", "fix"),
    [
        (
            "+data.sources.docs.val_fractoin=0.2",
            "data.sources.docs.val_fractoin",
            "keys: name, val_fraction",
            "did you mean data.sources.docs.val_fraction?",
        ),
        (
            "+data.sources.mine={name: text, pathh: x}",
            "data.sources.mine.pathh",
            "keys: name, val_fraction, split, packing, path",
            "did you mean data.sources.mine.path?",
        ),
        ("+data.sources.mine=python_docs", "data.sources.mine", "a slot is {name: ...", "data.sources.mine.name=..."),
    ],
)
def test_a_wrong_key_of_a_source_is_told_with_the_right_ones(override, path, rule, fix):
    with pytest.raises(ConfigError) as caught:
        load(compose(["data=mixture", override]))
    (problem,) = (problem for problem in caught.value.problems if problem.path == path)
    assert rule in problem.rule and problem.fix == fix
