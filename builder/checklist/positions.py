"""Question 3: which position scheme, trained at which length, deployed at which length?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from builder.components.position import Position
from builder.finding import Finding, Status
from builder.spec import ModelSpec

from . import deploy
from .probes import generation, order
from .subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """The verdict of every scheme on the two lengths; then the proof that a state and padding change nothing."""
    stated = subject.stated_in(3)
    beyond = any(finding.status is not Status.PASS for finding in stated)
    rows = deploy.rows(subject) if beyond else ()
    yield from (_behind_windows(finding, subject.model, rows) for finding in stated)
    for tower in subject.model.towers.values():
        yield from _of_two_sizes(tower)
        yield from _unread(tower)
    yield from _unasked(subject.model)
    yield from deploy.check(subject)
    yield from subject.prove(3, "model.position", "what a shift and an exchange of tokens change", order.prove)
    yield from subject.prove(3, "model", "prefill and decode against the full pass", generation.prove)


def _behind_windows(finding: Finding, model: ModelSpec, rows: Sequence[deploy.Deployed]) -> Finding:
    """What a scheme says of the lengths, where no layer that uses it looks so far: then its verdict is theirs."""
    slots = {
        layer.mixer.slot
        for tower in model.towers.values()
        for layer in tower.layers
        if finding.path.startswith(_path(tower.scheme_of(layer)))
    }
    served = [row for row in rows if row.slot in slots]
    if finding.status is Status.PASS or not served or any(row.status is not Status.PASS for row in served):
        return finding
    return replace(finding, status=Status.PASS, rule=served[0].rule, fix="")


def _path(scheme: str) -> str:
    return "model.position" if scheme == "model" else f"model.{scheme}.position"


def _of_two_sizes(model: ModelSpec) -> Iterator[Finding]:
    """Schemes made for a number of heads, whose mixers don't agree on one."""
    for scheme, config in model.schemes.items():
        parts = [layer.mixer for layer in model.layers if model.scheme_of(layer) == scheme]
        stated = {part.slot: part.config.component.heads_of(part.config) for part in parts}
        heads = {slot: count for slot, count in stated.items() if count is not None}
        if config.component.needs_heads and len(set(heads.values())) > 1:
            path = _path(scheme)
            found = f"{config.name} for {', '.join(f'{count} heads of {slot}' for slot, count in heads.items())}"
            rule = "its bias has a number for each head, so all mixers that share it must have as many"
            slots = list(heads)[1:]
            fix = " ".join(f"model.{slot}.position={{name: {config.name}}}" for slot in slots)
            yield Finding(Status.FAIL, 3, path, found, rule, fix)


def _unread(model: ModelSpec) -> Iterator[Finding]:
    """Schemes that nobody asks: only the model's is asked to embed, and only that of a slot that uses it to turn."""
    own = {slot: config for slot, config in model.schemes.items() if slot != "model"}
    for slot, config in own.items():
        if _acts(config.component, "embed") and not _acts(config.component, "rotate", "bias"):
            rule = "it writes into the embedded tokens, and there only model.position is asked"
            fix = f"model.position={{name: {config.name}}} model.{slot}.position=null, or another scheme for {slot}"
            yield Finding(Status.FAIL, 3, f"model.{slot}.position", f"{config.name}, unread", rule, fix)


def _unasked(model: ModelSpec) -> Iterator[Finding]:
    """The model's scheme, where every mixer of every tower has one of its own."""
    towers, scheme = model.towers.values(), model.position
    everyone = all(layer.mixer.slot in tower.schemes for tower in towers for layer in tower.layers)
    if everyone and _acts(scheme.component, "rotate", "bias") and not _acts(scheme.component, "embed"):
        rule = "every mixer has a scheme of its own, so nobody asks the model's"
        yield Finding(Status.FAIL, 3, "model.position", f"{scheme.name}, unread", rule, "model/position=none")


def _acts(scheme: type[Position], *hooks: str) -> bool:
    """Whether a scheme has one of these hooks of its own."""
    return any(getattr(scheme, hook) is not getattr(Position, hook) for hook in hooks)
