"""Question 5: with a mixture of experts, how many per token, and how are capacity and balance kept?"""

from __future__ import annotations

from collections.abc import Iterator

from builder.finding import Finding, Status

from .subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """What mixtures of experts say of themselves, or that there is none."""
    stated = subject.stated_in(5)
    if not stated:
        rule = "every token passes through every parameter of its layers"
        yield Finding(Status.PASS, 5, "model.pattern", "no MoE in this model", rule)
    yield from stated
