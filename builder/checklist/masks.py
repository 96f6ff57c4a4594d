"""Question 2: are the attention mask and the loss mask told apart, and is the first one kept?"""

from __future__ import annotations

from collections.abc import Iterator

from builder.finding import Finding, Status

from .monitors import unwatchable
from .probes import causality, counting, parts, rows
from .subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """What may be seen and what is counted, side by side; then the proof by perturbation."""
    objective = subject.spec.objective
    stated = objective.component
    rule = "the attention mask, set before the softmax; every real query sees at least itself"
    yield Finding(Status.PASS, 2, "model.kind", f"visible: {stated.attention_mask}", rule)
    rule = f"the loss mask of {objective.name}; it hides nothing from attention"
    yield Finding(Status.PASS, 2, "objective", f"counted: {stated.loss_mask}", rule)
    yield from subject.misfits
    yield from unwatchable(subject.spec, subject.corpus) if subject.trains else ()
    yield from subject.prove(2, "model", "what each part sees by itself", parts.prove)
    yield from subject.prove(2, "model", "who sees whom", causality.prove)
    yield from subject.prove(2, "model", "what rows of a batch see of each other", rows.prove)
    yield from subject.teach(2, "objective", "what is counted, and who sees it", counting.prove)
    yield from subject.stated_in(2)
