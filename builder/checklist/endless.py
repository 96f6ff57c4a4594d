"""What counts epochs, of which a run has one without end, and the rest of what a trainer is told in vain."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any

from builder.data.corpus import Corpus
from builder.errors import shown
from builder.finding import Finding, Status
from builder.spec import RunSpec
from builder.trainer import unheeded

_NOT_YET = "check_on_train_epoch_end"
"""By this knob a callback of Lightning's waits for an epoch to end; unset, it does where each step validates."""


def vain(spec: RunSpec, corpus: Corpus | None = None) -> Iterator[Finding]:
    """What of trainer and callbacks would have no effect on a run, or no more than once at its end."""
    for key, found, rule, fix in unheeded(spec.trainer):
        yield Finding(Status.FAIL, 2, f"trainer.{key}", shown(found), rule, fix)
    yield from _too_few(spec, corpus)
    for name, node in spec.callbacks.items():
        for key, value in node.items():
            if _waits(key, value):
                yield _late(node, f"callbacks.{name}.{key}", shown(value), f"leave callbacks.{name}.{key} out")
        if spec.trainer.get("val_check_interval") == 1 and node.get(_NOT_YET) is None and _takes(node, _NOT_YET):
            path = f"callbacks.{name}.{_NOT_YET}"
            yield _late(node, path, "nothing, beside trainer.val_check_interval=1", f"{path}=false")


def _waits(key: str, value: object) -> bool:
    """Whether a knob of a callback asks for something at the end of epochs, or after some of them."""
    counts = not {"epoch", "epochs"}.isdisjoint(key.split("_"))
    return (counts and bool(value)) or value == "epoch"


def _late(node: Mapping[str, Any], path: str, found: str, fix: str) -> Finding:
    """Of a callback of Lightning's it is known what it does then; another's may mean something else by the word."""
    known = node["_target_"].split(".")[0] in ("lightning", "pytorch_lightning")
    rule = "a run is one epoch without end: a callback that waits for an epoch to end waits for ever"
    return Finding(Status.FAIL if known else Status.WARN, 2, path, found, rule, fix)


def _takes(node: Mapping[str, Any], knob: str) -> bool:
    """Whether a callback has such a knob."""
    module, _, name = node["_target_"].rpartition(".")
    try:
        return knob in inspect.signature(pkgutil.resolve_name(f"{module}:{name}")).parameters
    except Exception:  # whatever its package raises when it is imported: the run tells it
        return False


def _too_few(spec: RunSpec, corpus: Corpus | None) -> Iterator[Finding]:
    """A fraction of the validation that is no batch: Lightning refuses it once the run has begun."""
    limit = spec.trainer.get("limit_val_batches")
    if corpus is None or not isinstance(limit, float) or not 0 < limit < 1:
        return
    from builder.data.loader import ValBatches

    count = len(ValBatches(corpus.val, batch=spec.rows))
    if int(count * limit) < 1:
        rule = f"a fraction of {count} batches that holds a whole one, {1 / count:.2g} and more, or a number of batches"
        yield Finding(Status.FAIL, 2, "trainer.limit_val_batches", str(limit), rule, "trainer.limit_val_batches=1")
