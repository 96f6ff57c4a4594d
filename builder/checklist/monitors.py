"""Whether what callbacks watch is logged, and whether they take the right end of it for the best."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any

from builder.data.corpus import Corpus
from builder.errors import nearest
from builder.experiments.metrics import better
from builder.finding import Finding, Status
from builder.spec import RunSpec
from builder.training.figures import names, watched

from .endless import vain


def unwatchable(spec: RunSpec, corpus: Corpus | None = None) -> Iterator[Finding]:
    """What is wrong with `monitor` and `mode` of a callback: best.ckpt would never be written, or be the worst; and
    what is told trainer and callbacks in vain."""
    yield from vain(spec, corpus)
    known, watches = [*names(spec, corpus)], watched(spec)
    if watches and spec.trainer.get("limit_val_batches") == 0:
        rule = f"{', '.join(watch.path for watch in watches)} look at what a validation finds, and there is none"
        yield Finding(Status.FAIL, 2, "trainer.limit_val_batches", "0", rule, "leave trainer.limit_val_batches out")
    for watch in watches:
        if watch.monitor in known:
            yield from _turned(watch.path, watch.monitor, watch.mode)
            continue
        told = {name: _logs(node) for name, node in spec.callbacks.items()}
        every = [*known, *(metric for logs in told.values() for metric in logs or ())]
        if watch.monitor in every:
            continue
        silent = [f"callbacks.{name}" for name, logs in told.items() if logs is None]
        status, rule = Status.FAIL, f"a metric of the run, which are {', '.join(every)}"
        if silent or any(part.isdigit() for part in watch.monitor.split("/")):  # which stands in all that layers report
            status = Status.UNKNOWN
            rule += (
                f"; {' or '.join(silent) or 'a layer'} may log it too: without it the run ends when it validates first"
            )
        close = nearest(watch.monitor, every) or "val/loss"
        turned = (finding.fix for finding in _turned(watch.path, close, watch.mode))
        fix = ", ".join((f"{watch.path}.monitor={close}", *turned))
        yield Finding(status, 2, f"{watch.path}.monitor", watch.monitor, rule, fix)


def _turned(path: str, monitor: str, mode: str) -> Iterator[Finding]:
    right = better(monitor)
    if right is not None and mode != right:
        more = "more" if right == "max" else "less"
        rule = f"{more} of {monitor} is better, so that the best is its {right}"
        yield Finding(Status.FAIL, 2, f"{path}.mode", mode, rule, f"{path}.mode={right}")


def _logs(node: Mapping[str, Any]) -> tuple[str, ...] | None:
    """What a callback states that it logs as `logs`, nothing where it only watches; None: it doesn't say."""
    module, _, name = node["_target_"].rpartition(".")
    try:
        stated = getattr(pkgutil.resolve_name(f"{module}:{name}"), "logs", None)
    except Exception:  # whatever its package raises when it is imported: the run tells it
        stated = None
    return () if stated is None and "monitor" in node else stated
