"""Question 6: do the logits' vocabulary and the tokenizer match, and does the tokenizer keep what it is given?"""

from __future__ import annotations

from collections.abc import Iterator

from builder.data.corpus import Corpus
from builder.data.tokenizer import Tokenizer
from builder.finding import Finding, Status
from builder.ledger.states import once

from . import ends, spelling
from .subject import Subject

_READ, _ROWS = 1 << 16, 512
"""How many tokens of the training data are looked at, and in how many rows at most."""


def check(subject: Subject) -> Iterator[Finding]:
    """Rows against ids: the tokenizer's, the special ones, the largest in the data, and those that may be written; what
    becomes of text in the tokenizer, and how it ends in the data."""
    tokenizer, declared = subject.tokenizer, subject.spec.tokenizer
    asked: int = declared.size  # type: ignore[attr-defined]
    ids = asked if tokenizer is None else len(tokenizer)
    rows = subject.model.vocab_size or 0
    yield _rows(subject, rows, ids, asked)
    yield from _shared(subject)
    if tokenizer is None:
        rule = "special ids, round trip and what may be written are read off the tokenizer, and none was read here"
        yield Finding(Status.UNKNOWN, 6, "tokenizer", "not read", rule)
    else:
        yield _specials(tokenizer, rows)
        yield from _spelling(subject, tokenizer)
        yield from _written(subject, tokenizer, rows)
    if subject.corpus is None:
        rule = "the largest id, and how texts end, are read off the tokenised data, and it wasn't read here"
        yield Finding(Status.UNKNOWN, 6, "data", "not read", rule)
        return
    corpus = subject.corpus
    read = ends.Read.of(corpus.train, min(_ROWS, max(1, _READ // (subject.model.train_length + 1))))
    yield _ids(corpus, read, rows, ids)
    if corpus.tokenizer.trials() is None:
        if subject.probes:
            yield spelling.of_data(corpus.tokenizer, corpus.opening)
        yield from ends.of_data(corpus.tokenizer, read, spelling.unknown_of(corpus.tokenizer))
        if _writes(subject) and subject.spec.sample.max_new_tokens is None:
            yield ends.ended(corpus.tokenizer, read)
    if corpus.labels:
        yield from _labels(subject, len(corpus.labels))


def _rows(subject: Subject, rows: int, ids: int, asked: int) -> Finding:
    """The two ends of the model as they are built, against the ids; of a model that can't be, as they are asked for."""
    head, name = subject.model.head, subject.spec.tokenizer.name
    said, embedded, logits = head.component.gives == "tokens", rows, rows
    if subject.ledger is not None:
        embedded = len(once(subject.model).embedding.weight)
        logits = next(line.sizes[-1] for line in subject.ledger.shapes if line.tensor == "logits")
    given = f"{logits} logits rows" if said else f"a head that gives {head.component.gives}"
    found = f"{embedded} embedding rows, {given}, tokenizer {name} of {ids} ids"
    if embedded < ids:
        rule = "every id of the tokenizer needs a row"
        return Finding(Status.FAIL, 6, "model.vocab_size", found, rule, f"model.vocab_size=null, or at least {ids}")
    if said and logits != embedded:
        rule = "what is written is read next: an id has a row in both, or in neither"
        fix = f"model.head.name=language_model, or a {head.name} with as many rows as the embedding"
        return Finding(Status.FAIL, 6, "model.head", found, rule, fix)
    if embedded > 2 * ids:
        rule = "most rows belong to no token: is this the tokenizer that the model was meant for?"
        fix = "model.vocab_size=null, or tokenizer=file"
        if embedded == asked:  # as many as it was to learn
            rule = f"most rows belong to no token: {asked} ids were asked for, and its data had no more to give"
            own = ids - len(subject.spec.tokenizer.specials)  # type: ignore[attr-defined]
            fix = f"tokenizer.vocab_size={own}, or more data"
        return Finding(Status.WARN, 6, "model.vocab_size", found, rule, fix)
    if embedded > ids:
        rule = f"rows {ids} to {embedded - 1} only pad: never sampled"
        return Finding(Status.PASS, 6, "model.vocab_size", found, rule)
    return Finding(Status.PASS, 6, "model.vocab_size", found, "one row for each id; every id may be sampled")


def _shared(subject: Subject) -> Iterator[Finding]:
    """Of a model that reads a source: that it is read by the table that the target is read by."""
    if subject.model.encoder is None or subject.ledger is None:
        return
    built = once(subject.model)
    tables = {id(tower.embedding.weight): len(tower.embedding.weight) for tower in built.towers.values()}
    found = f"{' and '.join(map(str, tables.values()))} rows for source and target"
    rule = "both are of one tokenizer, and share one table"
    fix = "" if len(tables) == 1 else "an encoder whose table is that of the decoder"
    yield Finding(_judged(not fix), 6, "model.encoder", found, rule, fix)


def _specials(tokenizer: Tokenizer, rows: int) -> Finding:
    numbers, count = list(tokenizer.specials.values()), len(tokenizer)
    found = ", ".join(f"{name} {number}" for name, number in tokenizer.specials.items())
    rule = f"special ids are distinct, among the {count} of the tokenizer, and each has a row"
    fix = ""
    if len(set(numbers)) < len(numbers) or not all(0 <= number < count for number in numbers):
        fix = "a tokenizer that gives each special token an id of its own, below its length"
    elif not all(number < rows for number in numbers):
        fix = "model.vocab_size=null"
    return Finding(_judged(not fix), 6, "tokenizer", f"special ids: {found}", rule, fix)


def _spelling(subject: Subject, tokenizer: Tokenizer) -> Iterator[Finding]:
    if not subject.probes:
        yield subject.unproven(6, "tokenizer", "round trip of text")
        return
    yield ends.whole(tokenizer)
    yield from spelling.check(tokenizer)


def _written(subject: Subject, tokenizer: Tokenizer, rows: int) -> Iterator[Finding]:
    """Which ids come out of a model that writes tokens."""
    if subject.model.head.component.gives != "tokens":
        return
    count, pads = len(tokenizer), rows - len(tokenizer)
    found = f"ids 0 to {count - 1}, as far as the tokenizer goes"
    found += f", and none of the {pads} behind it" if pads > 0 else ""
    others = [name for name, number in tokenizer.specials.items() if number != tokenizer.eos]
    if _writes(subject):
        rule = f"id {tokenizer.eos} ends what is written"
        rule += f"; {', '.join(others)} can be drawn like any other, and say nothing" if others else ""
    else:
        rule = "what stands behind a mask is any of them but a special one"
    yield Finding(Status.PASS, 6, "sample", found, rule)


def _writes(subject: Subject) -> bool:
    return subject.model.causal and subject.model.head.component.gives == "tokens"


def _ids(corpus: Corpus, read: ends.Read, rows: int, ids: int) -> Finding:
    """The largest id that is known of, in either split, and what really stands in the first steps read."""
    least, largest = int(read.ids.min()), max(corpus.largest_id, int(read.ids.max()))
    found = f"largest id {largest}" + (f", smallest {least}" if least < 0 else "")
    rule = f"every id of the data has a row: at most {rows - 1}"
    if least < 0:
        return Finding(Status.FAIL, 6, "data", found, rule, "a tokenizer whose ids count from 0")
    fix = "" if largest < rows else f"model.vocab_size={max(ids, largest + 1)}"
    return Finding(_judged(not fix), 6, "data", found, rule, fix)


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


def _judged(holds: bool) -> Status:
    return Status.PASS if holds else Status.FAIL
