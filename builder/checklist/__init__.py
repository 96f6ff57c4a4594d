"""The checklist of chapter 3.11: six questions about a config, each answered, judged, and proven where it can be."""

from __future__ import annotations

from builder.data.corpus import Corpus
from builder.data.tokenizer import Tokenizer
from builder.errors import expect
from builder.spec import RunSpec

from . import deploy, dimensions, experts, masks, positions, structure, vocabulary
from .report import Report
from .subject import Subject

__all__ = ["Report", "check"]

_QUESTIONS = (dimensions, masks, positions, structure, experts, vocabulary)


def check(
    spec: RunSpec,
    probes: bool = True,
    *,
    corpus: Corpus | None = None,
    tokenizer: Tokenizer | None = None,
    trains: bool = True,
) -> Report:
    """Every finding about a run, in the order of the six questions; no weight of the model is allocated.

    probes      proves answers by running a small copy of the model on the CPU
    corpus      the tokenised data, when it was read: then the vocabulary is judged by what is really there
    tokenizer   the tokenizer, when only that is at hand
    trains      whether it is to be trained: then the memory of a step is forecast, and must fit
    """
    expect(spec, RunSpec, "check", "check(load(config))")
    subject = Subject(spec, probes, corpus, corpus.tokenizer if corpus is not None else tokenizer, trains)
    findings = tuple(finding for question in _QUESTIONS for finding in question.check(subject))
    return Report(findings, deploy.rows(subject))
