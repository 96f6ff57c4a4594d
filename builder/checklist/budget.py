"""Does the model cost what its budget says?"""

from __future__ import annotations

from collections.abc import Iterator

from builder.finding import Finding, Status

from .subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """What a budget counts of the model, against its target; nothing for a run without one."""
    budget = subject.spec.budget
    if budget is None:
        return
    share = f"{budget.unit} within {100 * budget.tolerance:g}% of {budget.target:,}"
    if subject.ledger is None:
        rule = f"{share}: what the model costs isn't known"
        yield Finding(Status.UNKNOWN, 1, "budget", budget.chosen, rule, "mend the failures")
        return
    cost = budget.cost(subject.ledger)
    side = "above" if cost > budget.target else "below"
    found = f"{cost:,} {budget.unit} with {budget.chosen}, {abs(budget.off(cost)):.2%} {side}"
    if budget.met(cost):
        yield Finding(Status.PASS, 1, "budget", found, share)
    else:
        rule = f"{share}: the model was changed after that had been chosen for it"
        yield Finding(
            Status.FAIL,
            1,
            "budget",
            found,
            rule,
            "budget.solved=null to choose it anew, or a config without the section budget",
        )
