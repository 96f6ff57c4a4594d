"""Question 5: with a mixture of experts, how many per token, and how are capacity and balance kept?"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from builder.finding import Finding, Status
from builder.ledger import EXPERT_RANKS, Ledger

from .probes import balancing, routing
from .subject import Subject

_TOKENS = 4096


def check(subject: Subject) -> Iterator[Finding]:
    """What mixtures of experts say of themselves, what they cost, and where they send tokens; or that there is none."""
    stated = subject.stated_in(5)
    if not stated:
        rule = "every token passes through every parameter of its layers"
        yield Finding(Status.PASS, 5, "model.pattern", "no MoE in this model", rule)
        return
    yield from stated
    for slot, part in subject.ffns.items():
        said = part.component.judge_pass(part, subject.spec.rows * subject.model.train_length)
        yield from (finding.under(f"model.{slot}") for finding in said)
    if subject.ledger is not None:
        yield from _costs(subject.ledger)
    if subject.probes:
        yield from _routing(subject)
        yield from subject.prove(5, "model.pattern", "balancing acts on the router", balancing.prove)


def _costs(costs: Ledger) -> Iterator[Finding]:
    share = costs.active_params / costs.params
    found = f"{costs.params:,} parameters, {costs.active_params:,} active per token"
    yield Finding(Status.PASS, 5, "model", found, f"a token passes through {share:.1%} of the model")
    sent = ", ".join(f"{costs.communication(ranks):,} over {ranks}" for ranks in EXPERT_RANKS)
    rule = (
        "a copy for each expert, there and back in a forward pass, in float32, with experts spread over so many ranks"
    )
    yield Finding(Status.PASS, 5, "model", f"bytes sent per token: {sent} ranks", rule)


def _routing(subject: Subject) -> Iterator[Finding]:
    """The load at init, on random tokens and on those of the data."""
    model, rows = subject.model, subject.model.vocab_size or 1
    noise = torch.randint(rows, (_TOKENS,), generator=torch.Generator().manual_seed(0))
    yield from subject.prove(
        5, "model.pattern", "routing of random tokens", lambda _: routing.simulate(model, noise, "random tokens")
    )
    if subject.corpus is None:
        rule = "the load on real tokens needs the tokenised data, and it wasn't read here"
        yield Finding(Status.UNKNOWN, 5, "data", "not read", rule)
        return
    real = subject.corpus.train.first(_TOKENS).clamp_max(rows - 1)  # ids without a row fail in question 6
    yield from subject.prove(
        5, "model.pattern", "routing of real tokens", lambda _: routing.simulate(model, real, "real tokens")
    )
