"""Question 2: are the attention mask and the loss mask told apart, and is the first one kept?"""

from __future__ import annotations

from collections.abc import Iterator

from builder.division import Division
from builder.finding import Finding, Status
from builder.registry import find, names

from .probes import causality
from .subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """What may be seen and what is counted, side by side; then the proof by perturbation."""
    objective = subject.spec.objective
    stated = objective.component
    rule = "the attention mask, set before the softmax; every real query sees at least itself"
    yield Finding(Status.PASS, 2, "model.kind", f"visible: {stated.attention_mask}", rule)
    rule = f"the loss mask of {objective.name}; it hides nothing from attention"
    yield Finding(Status.PASS, 2, "objective", f"counted: {stated.loss_mask}", rule)
    yield from _fits(subject)
    yield from subject.prove(2, "model", "who sees whom", causality.prove)
    yield from subject.stated_in(2)


def _fits(subject: Subject) -> Iterator[Finding]:
    """Whether this model, and this head, can be asked what the objective asks."""
    objective, model = subject.spec.objective, subject.model
    asks, head = objective.component, model.head.component
    if model.kind not in asks.kinds:
        rule = f"{objective.name} trains a model of kind {' or '.join(asks.kinds)}"
        fix = f"model={asks.kinds[0]}, or objective={_others('kinds', model.kind)}"
        yield Finding(Status.FAIL, 2, "objective", f"{objective.name}, with model.kind {model.kind}", rule, fix)
    kind: str = subject.spec.data.kind  # type: ignore[attr-defined]
    wanted = asks.asked(kind)
    if head.gives not in wanted:
        heads = [name for name in names("head") if find("head", name).gives in wanted]
        rule = f"{objective.name} asks for {' or '.join(wanted)}, of data that is {kind}"
        found = f"the head {model.head.name}, which gives {head.gives}"
        fix = f"model/head={' or '.join(heads)}, or objective={_others('gives', head.gives)}"
        yield Finding(Status.FAIL, 2, "model.head", found, rule, fix)
    if asks.prefix != model.prefix:
        rule = "the prefix is seen in both directions, in training as in generation"
        rule = rule if asks.prefix else f"{objective.name} trains on no prefix, so that none is to be seen so"
        fix = "model.prefix=true" if asks.prefix else "model.prefix=false, or objective=prefix_lm"
        found = f"{str(model.prefix).lower()}, with objective {objective.name}"
        yield Finding(Status.FAIL, 2, "model.prefix", found, rule, fix)
    if subject.spec.fused_loss and head.gives != "tokens":
        rule = "it computes the logits of the vocabulary a piece at a time, and this head has none"
        yield Finding(Status.FAIL, 2, "fused_loss", f"true, with the head {model.head.name}", rule, "fused_loss=false")
    if asks.together and subject.spec.rows < 2:
        rule = f"{objective.name} tells a row from the others of its batch, and here is no other"
        yield Finding(Status.FAIL, 2, "batch.sequences", f"{subject.spec.rows}", rule, "batch.sequences=32")
    micro = subject.spec.batch.micro_batch
    ranks = Division.of(subject.spec.trainer).data
    if asks.together and (micro not in (None, subject.spec.rows) or ranks > 1):
        rule = f"{objective.name} tells a row from all others of its batch, which must be computed at once"
        found = f"{micro} rows at once on {ranks} ranks"
        yield Finding(Status.FAIL, 2, "batch.micro_batch", found, rule, "batch.micro_batch=null trainer.devices=1")


def _others(attribute: str, wanted: str) -> str:
    found = [name for name in names("objective") if wanted in getattr(find("objective", name), attribute)]
    return " or ".join(found) or "<one of your own>"
