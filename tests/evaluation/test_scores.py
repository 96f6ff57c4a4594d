"""Scores of answers, against counts by hand and a loop over n-grams."""

import math
from collections import Counter

import pytest

from builder.evaluation.scores import score

SAID = ["the cat the cat on the mat", "Добавить ещё один", "Удалить"]
WANTED = ["the cat is on the mat", "Добавить", "Удалить"]


def chrf(said, wanted, most=6, beta=2.0):
    """The mean over n of F, from the precision and recall of all n-grams of characters without white space."""
    scores = []
    for n in range(1, most + 1):
        hit = made = there = 0
        for one, other in zip(said, wanted, strict=True):
            a, b = ("".join(text.split()) for text in (one, other))
            mine, its = (Counter(text[i : i + n] for i in range(len(text) - n + 1)) for text in (a, b))
            hit, made, there = hit + (mine & its).total(), made + mine.total(), there + its.total()
        precision, recall = hit / made, hit / there
        scores.append((1 + beta**2) * precision * recall / (beta**2 * precision + recall))
    return 100 * sum(scores) / most


def test_chrf_is_that_of_a_loop():
    found = score(SAID, WANTED)["chrf"]
    assert found == pytest.approx(chrf(SAID, WANTED), abs=1e-3)
    assert found != pytest.approx(chrf(WANTED, SAID), abs=1e-3), "recall counts more"


def test_bleu_of_sentences_that_can_be_counted_by_hand():
    short, long = "the cat is on the mat", "the cat is on the mat today"
    assert score([long], [short])["bleu"] == pytest.approx(100 * (6 / 7 * 5 / 6 * 4 / 5 * 3 / 4) ** 0.25, abs=1e-3)
    assert score([short], [long])["bleu"] == pytest.approx(100 * math.exp(1 - 7 / 6), abs=1e-3), "too short"


def test_exact_match_is_to_the_character():
    assert score(SAID, WANTED)["exact_match"] == pytest.approx(100 / 3)
    assert score(["Удалить "], ["Удалить"])["exact_match"] == 0
    assert score(WANTED, WANTED) == pytest.approx({"exact_match": 100, "chrf": 100, "bleu": 100}, abs=1e-3)
    assert score(["", ""], ["a", "b"]) == {"exact_match": 0, "chrf": 0, "bleu": 0}
