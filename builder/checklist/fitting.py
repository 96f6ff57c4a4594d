"""Whether a model, its head and its data can be asked what the objective asks."""

from __future__ import annotations

from collections.abc import Iterator

from builder.division import Division
from builder.finding import Finding, Status
from builder.registry import find, names
from builder.spec import RunSpec


def misfits(spec: RunSpec) -> Iterator[Finding]:
    """What of a run doesn't fit its objective: all of it FAILs."""
    objective, model = spec.objective, spec.model
    asks, head = objective.component, model.head.component
    kind: str = spec.data.kind  # type: ignore[attr-defined]
    able = {name: find("objective", name) for name in names("objective")}
    if model.kind not in asks.kinds:
        rule = f"{objective.name} trains a model of kind {' or '.join(asks.kinds)}"
        others = [name for name, other in able.items() if model.kind in other.kinds and kind in other.reads]
        fix = f"model={asks.kinds[0]}" + (f", or objective={' or '.join(others)}" if others else "")
        yield Finding(Status.FAIL, 2, "objective", f"{objective.name}, with model.kind {model.kind}", rule, fix)
    wanted = asks.asked(kind)
    if head.gives not in wanted:
        heads = [name for name in names("head") if find("head", name).gives in wanted]
        rule = f"{objective.name} asks for {' or '.join(wanted)}, of data that is {kind}"
        found = f"the head {model.head.name}, which gives {head.gives}"
        others = [name for name, other in able.items() if kind in other.reads and head.gives in other.asked(kind)]
        fix = f"model/head={' or '.join(heads)}" + (f", or objective={' or '.join(others)}" if others else "")
        yield Finding(Status.FAIL, 2, "model.head", found, rule, fix)
    if asks.prefix != model.prefix:
        rule = "the prefix is seen in both directions, in training as in generation"
        rule = rule if asks.prefix else f"{objective.name} trains on no prefix, so that none is to be seen so"
        fix = "model.prefix=true" if asks.prefix else "model.prefix=false, or objective=prefix_lm"
        found = f"{str(model.prefix).lower()}, with objective {objective.name}"
        yield Finding(Status.FAIL, 2, "model.prefix", found, rule, fix)
    if spec.fused_loss and head.gives != "tokens":
        rule = "it computes the logits of the vocabulary a piece at a time, and this head has none"
        yield Finding(Status.FAIL, 2, "fused_loss", f"true, with the head {model.head.name}", rule, "fused_loss=false")
    if asks.together and spec.rows < 2:
        rule = f"{objective.name} tells a row from the others of its batch, and here is no other"
        yield Finding(Status.FAIL, 2, "batch.sequences", f"{spec.rows}", rule, "batch.sequences=32")
    micro = spec.batch.micro_batch
    ranks = Division.of(spec.trainer).data
    if asks.together and (micro not in (None, spec.rows) or ranks > 1):
        rule = f"{objective.name} tells a row from all others of its batch, which must be computed at once"
        found = f"{micro} rows at once on {ranks} ranks"
        yield Finding(Status.FAIL, 2, "batch.micro_batch", found, rule, "batch.micro_batch=null trainer.devices=1")
