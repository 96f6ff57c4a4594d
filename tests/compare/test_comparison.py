"""Ranks: by the best or the last, only of what is alike and whole, unless told otherwise."""

import pytest

from builder import ArchlabError
from builder.compare import CompareSpec
from tests.compare.synthetic import compared, write

FALLING, RISING = {10: 3.0, 20: 1.0, 30: 2.0}, {10: 1.5, 20: 1.5, 30: 1.5}


def names(found):
    return [row.configuration.runs[0].name for row in found.rows]


@pytest.fixture
def two(tmp_path):
    write(tmp_path / "b", RISING, optimizer__lr=2e-3, trainer__max_steps=30)
    more = {"val/accuracy": {10: 0.1, 20: 0.5, 30: 0.9}}
    write(tmp_path / "a", FALLING, more=more, trainer__max_steps=30)
    return tmp_path


def test_by_the_best_and_by_the_last(two):
    by_best, by_last = compared(two), compared(two, by="last")
    assert names(by_best) == ["a", "b"] and names(by_last) == ["b", "a"]
    assert [row.mean.mean for row in by_best.rows] == [1.0, 1.5]
    assert [row.mean.mean for row in by_last.rows] == [1.5, 2.0]
    assert [found.step for row in by_best.rows for _, found in row.values] == [20, 10]
    assert list(by_best.keys) == ["optimizer.lr"]


def test_more_is_better_where_it_is(two):
    found = compared(two, rank="val/accuracy")
    assert names(found)[0] == "a" and found.rows[1].mean is None, "b has a gap, and no zero"
    assert names(compared(two, goal="max"))[0] == "a", "its worst loss is the largest"


def test_a_number_that_is_none_never_wins(tmp_path):
    write(tmp_path / "broken", [None, None], model__n_layers=2)
    write(tmp_path / "later", [1.0, None], model__n_layers=3)
    write(tmp_path / "whole", [3.0, 2.0], model__n_layers=4)
    write(tmp_path / "other", [3.0, 2.5], model__n_layers=5)
    found = compared(tmp_path, by="last")
    assert names(found) == ["whole", "other", "broken", "later"]
    assert [row.rank for row in found.rows] == [1, 2, None, None]
    assert "later: val/loss is no number at step 100" in found.rows[3].marks
    assert names(compared(tmp_path))[0] == "later", "its best is one"


def test_a_configuration_whose_seed_diverged_is_no_better_for_it(tmp_path):
    """Without the seed that has no number, the mean would be that of the lucky ones."""
    for seed, loss in enumerate([1.0, None, 1.0]):
        write(tmp_path / f"a{seed}", [loss], seed=seed, model__n_layers=2)
    for n in (3, 4):
        write(tmp_path / f"b{n}", [2.0], model__n_layers=n)
    found = compared(tmp_path)
    assert [row.rank for row in found.rows] == [1, 2, None]
    assert names(found)[2] == "a0"
    forced = compared(tmp_path, force=True)
    assert names(forced)[0] == "a0" and forced.rows[0].mean.n == 2


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"costs": {"params": 1020}}, "parameters: 1,000 to 1,020"),
        ({"costs": {"flops_per_token": 2100}}, "training FLOPs"),
        ({"trainer__max_steps": 50, "loss": {25: 3.0, 50: 1.0}}, "training tokens: 51,200 to 102,400 (x 2)"),
        ({"corpus": "d" * 64}, "data: 2 different texts"),
        ({"corpus": None}, "data: the fingerprint isn't known of all"),
        ({"trainer__limit_val_batches": 2}, "validated: 64 rows and all rows"),
        ({"trainer__limit_val_batches": 0.5}, "validated: 0.5 of the rows and all rows"),
        ({"objective": {"name": "prefix_lm"}, "model__prefix": True}, "targets: next_token(across_documents=false)"),
        ({"objective": {"name": "next_token", "across_documents": True}}, "and next_token(across_documents=true)"),
    ],
)
def test_what_is_not_alike_is_not_ranked_unless_told_to(other, named, tmp_path):
    write(tmp_path / "a", [3.0, 2.0])
    write(tmp_path / "b", **{"loss": [3.0, 1.0], **other}, model__n_layers=3)
    refused = compared(tmp_path)
    assert not refused.ranked and named in refused.refusal
    assert [row.rank for row in refused.rows] == [None, None] and names(refused) == ["a", "b"]
    forced = compared(tmp_path, force=True)
    assert names(forced) == ["b", "a"] and named in forced.overruled
    told = [match.aspect for match in refused.matches if match.alike]
    assert names(compared(tmp_path, match=told)) == ["b", "a"]
    assert f"match=[{','.join(aspect for aspect in CompareSpec.model_fields['match'].default if aspect in told)}]" in (
        refused.advice
    )
    assert ("budget=" in refused.advice) == named.startswith(("parameters", "training"))


def test_within_one_percent_is_alike(tmp_path):
    """And what only training reads changes no target of a validation."""
    write(tmp_path / "a", [3.0, 2.0], costs={"params": 1000})
    smoothed = {"name": "next_token", "label_smoothing": 0.1}
    write(tmp_path / "b", [3.0, 1.0], costs={"params": 1010}, objective=smoothed, trainer__limit_val_batches=1.0)
    found = compared(tmp_path)
    assert found.ranked and found.overruled == ""


@pytest.mark.parametrize("status", ["failed", "interrupted", "running"])
def test_what_did_not_end_is_marked_and_not_ranked(status, tmp_path):
    write(tmp_path / "a", {50: 0.1}, status=status, summary={"reason": "why"}, model__n_layers=2)
    write(tmp_path / "b", [3.0, 2.0], model__n_layers=3)
    write(tmp_path / "c", [3.0, 2.5], model__n_layers=4)
    found = compared(tmp_path)
    assert names(found) == ["b", "c", "a"] and found.rows[2].rank is None
    assert found.rows[2].marks == (f"a: {status} at step 50 of 100: why",)
    assert names(compared(tmp_path, force=True))[0] == "a"


def test_a_seed_that_failed_leaves_the_others_to_count(tmp_path):
    for seed in (0, 1):
        write(tmp_path / f"a{seed}", [2.0 + seed], seed=seed)
    write(tmp_path / "a2", {50: 0.1}, seed=2, status="failed")
    (row,) = compared(tmp_path).rows
    assert row.mean.n == 2 and row.mean.mean == 2.5
    assert row.whole and any("a2: failed" in mark for mark in row.marks)


def test_a_shorter_run_is_marked(tmp_path):
    write(tmp_path / "a", {40: 2.0}, summary={"reason": "early stopping"})
    write(tmp_path / "b", [2.0], model__n_layers=3)
    found = compared(tmp_path)
    assert found.rows[0].marks == ("a: short: 40 of 100 steps, early stopping",)
    assert "tokens" in found.refusal


def test_pairs_are_tested_where_they_are_alike(tmp_path):
    for layers, params in ((2, 1000), (3, 1000), (4, 5000)):
        for seed in range(3):
            write(
                tmp_path / f"{layers}-{seed}",
                [layers + 0.01 * seed],
                seed=seed,
                costs={"params": params},
                model__n_layers=layers,
            )
    found = compared(tmp_path)
    assert not found.ranked
    assert [(pair.first, pair.second) for pair in found.pairs] == [(0, 1)]
    assert found.pairs[0].differs and found.pairs[0].difference == pytest.approx(-1)
    assert len(compared(tmp_path, force=True).pairs) == 3


def test_alone_there_is_nothing_to_rank_and_only_another_run_helps(tmp_path):
    write(tmp_path / "a")
    found = compared(tmp_path)
    assert found.refusal == "one configuration, beside no other" and "runs=DIR,DIR" in found.advice
    write(tmp_path / "b", status="failed", model__n_layers=3)
    assert "force=true" in compared(tmp_path).advice and "match" not in compared(tmp_path).advice


def test_a_metric_that_nobody_logged_is_refused_with_the_nearest(tmp_path):
    write(tmp_path / "a")
    with pytest.raises(ArchlabError, match=r"rank: found 'val/los'.*rank=val/loss"):
        compared(tmp_path, rank="val/los")
