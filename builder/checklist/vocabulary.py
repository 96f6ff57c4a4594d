"""Question 6: do the logits' vocabulary and the tokenizer match?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from builder.data.tokenizer import Tokenizer
from builder.finding import Finding, Status

from .subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Rows against ids: the tokenizer's, the special ones, the largest in the data, and those that may be sampled."""
    rows = subject.model.vocab_size or 0
    declared: Any = subject.spec.tokenizer
    ids = declared.size if subject.tokenizer is None else len(subject.tokenizer)
    yield _rows(rows, ids, subject.spec.tokenizer.name)
    if subject.tokenizer is not None:
        yield _specials(subject.tokenizer, rows)
    if subject.corpus is None:
        rule = "the largest id is read off the tokenised data, and it wasn't read here"
        yield Finding(Status.UNKNOWN, 6, "data", "not read", rule)
        return
    largest = subject.corpus.largest_id
    rule = f"every id of the data has a row: at most {rows - 1}"
    fix = "" if largest < rows else f"model.vocab_size={max(ids, largest + 1)}"
    yield Finding(_judged(largest < rows), 6, "data", f"largest id {largest}", rule, fix)
    if subject.corpus.labels:
        yield from _labels(subject, len(subject.corpus.labels))


def _labels(subject: Subject, there: int) -> Iterator[Finding]:
    """The classes of the head against the labels of the data."""
    head = subject.model.head
    knob = head.component.width_of
    if knob is None:
        return
    classes, path = getattr(head, knob), f"model.head.{knob}"
    if classes == there:
        yield Finding(Status.PASS, 6, path, f"{classes} classes, {there} labels in the data", "one for each label")
    elif classes < there:
        rule = "every label of the data is a class"
        yield Finding(Status.FAIL, 6, path, f"{classes} classes, {there} labels in the data", rule, f"{path}={there}")
    else:
        rule = "a class without a label is never right"
        yield Finding(Status.WARN, 6, path, f"{classes} classes, {there} labels in the data", rule, f"{path}={there}")


def _specials(tokenizer: Tokenizer, rows: int) -> Finding:
    numbers = list(tokenizer.specials.values())
    distinct, rowed = len(set(numbers)) == len(numbers), all(0 <= number < rows for number in numbers)
    fix = "model.vocab_size=null" if distinct else "a tokenizer that gives each special token an id of its own"
    found = ", ".join(f"{name} {number}" for name, number in tokenizer.specials.items())
    rule = "special ids are distinct and each has a row"
    holds = distinct and rowed
    return Finding(_judged(holds), 6, "tokenizer", f"special ids: {found}", rule, "" if holds else fix)


def _rows(rows: int, ids: int, tokenizer: str) -> Finding:
    found = f"{rows} embedding rows, {rows} logits rows, tokenizer {tokenizer} of {ids} ids"
    if rows < ids:
        rule = "every id of the tokenizer needs a row"
        return Finding(Status.FAIL, 6, "model.vocab_size", found, rule, f"model.vocab_size=null, or at least {ids}")
    if rows > 2 * ids:
        rule = "most rows belong to no token: is this the tokenizer that the model was meant for?"
        return Finding(Status.WARN, 6, "model.vocab_size", found, rule, "model.vocab_size=null, or tokenizer=file")
    if rows > ids:
        return Finding(Status.PASS, 6, "model.vocab_size", found, f"rows {ids} to {rows - 1} only pad: never sampled")
    return Finding(Status.PASS, 6, "model.vocab_size", found, "one row for each id; every id may be sampled")


def _judged(holds: bool) -> Status:
    return Status.PASS if holds else Status.FAIL
