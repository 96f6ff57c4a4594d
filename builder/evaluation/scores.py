"""How near answers come to what was wanted, and how near those come that need no model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from builder.data import Corpus

from .answers import Answer, texts

MODEL, COPY, FREQUENT = "the model", "the source, copied", "the most frequent target"


def compare(given: Sequence[Answer], corpus: Corpus) -> dict[str, Mapping[str, float]]:
    """Scores of the answers, of the source in their place, and of what stood there most often in training."""
    wanted = [answer.wanted for answer in given]
    others = {
        MODEL: [answer.written for answer in given],
        COPY: [answer.source for answer in given],
        FREQUENT: [_most_frequent(corpus)] * len(given),
    }
    return {who: score(said, wanted) for who, said in others.items()}


def score(said: Sequence[str], wanted: Sequence[str]) -> dict[str, float]:
    """From 0 to 100 each: exact_match, the answers that are what was wanted, to the character; chrf and bleu, over all
    answers together: the mean over n to 6 of F with beta 2 (Popovic 2015); Papineni et al. 2002, as Post 2018 has it.
    """
    from torchmetrics.functional.text import chrf_score, sacre_bleu_score  # imports much, which few commands need

    right = sum(one == other for one, other in zip(said, wanted, strict=True))
    references = [[text] for text in wanted]
    chrf = chrf_score(list(said), references, n_word_order=0)
    assert not isinstance(chrf, tuple)
    return {
        "exact_match": 100 * right / len(wanted),
        "chrf": 100 * chrf.item(),
        "bleu": 100 * sacre_bleu_score(list(said), references).item(),
    }


def _most_frequent(corpus: Corpus) -> str:
    """The target that most training rows have."""
    counts: Counter[str] = Counter()
    for picks in corpus.train.every().split(256):
        batch = corpus.train.rows(picks)
        tokens = batch["tokens"][:, 1:]
        real = batch["attention_mask"][:, 1:] if "attention_mask" in batch else tokens > -1
        counts.update(texts(corpus.tokenizer, tokens, real))
    return counts.most_common(1)[0][0]
