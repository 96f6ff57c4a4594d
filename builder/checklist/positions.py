"""Question 3: which position scheme, trained at which length, deployed at which length?"""

from __future__ import annotations

from collections.abc import Iterator

from builder.finding import Finding, Status

from .probes import generation
from .subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """The verdict of every scheme on the two lengths; then the proof that a state and padding change nothing."""
    yield from subject.stated_in(3)
    if subject.specimen is not None and _reaches(subject):
        yield from generation.prove(subject.specimen)
    else:
        yield subject.unproven(3, "model", "prefill and decode against the full pass")


def _reaches(subject: Subject) -> bool:
    return all(finding.status is not Status.FAIL for finding in subject.stated_in(3))
