"""Question 4: how are norm, MLP, bias, weight tying and the order of the residual stream defined?"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from builder.components.init import roles
from builder.finding import Finding, Status
from builder.spec import LayerSpec, ModelSpec

from .probes import Specimen, tying
from .subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Equal layers drawn as one line, the final norm, unused slots, tying, and the role of each parameter."""
    model = subject.model
    for _, run in groupby(model.layers, key=str):
        yield _drawn(model, list(run))
    yield _final_norm(model)
    for slot in model.slots:
        if slot not in subject.used:
            rule = f"no layer uses this slot; the pattern is {list(model.pattern)}"
            fix = f"name {slot} in model.pattern, or leave it out with ~model.{slot}"
            yield Finding(Status.FAIL, 4, f"model.{slot}", f"{model.slots[slot].name}, unused", rule, fix)
    yield from subject.stated_in(4)
    yield from subject.prove(4, "model", "every parameter has a role", _unmarked)
    yield from subject.prove(4, "model.tie_embeddings", "tied weights share storage", tying.prove)


def _drawn(model: ModelSpec, run: list[LayerSpec]) -> Finding:
    drawing: str = model.block.component.drawing
    where = f"layer {run[0].index}" if len(run) == 1 else f"layers {run[0].index} to {run[-1].index}"
    steps = "; ".join(f"x = {drawing.replace('f(', f'{part.slot}(')}" for part in run[0].parts)
    parts = ", ".join(f"{part.slot} is {part.config.name}" for part in run[0].parts)
    return Finding(Status.PASS, 4, "model.pattern", f"{where}: {steps}", f"{parts}, norm is {model.norm.name}")


def _final_norm(model: ModelSpec) -> Finding:
    needed: bool = model.block.component.needs_final_norm
    found = f"{'a' if model.ends_in_norm else 'no'} norm before the head, block {model.block.name}"
    if needed and not model.ends_in_norm:
        rule = "this block leaves the stream unnormalised: without a final norm the logits grow with depth"
        return Finding(Status.FAIL, 4, "model.final_norm", found, rule, "model.final_norm=null, or true")
    if model.ends_in_norm and not needed:
        rule = "this block ends in a norm already: a second one follows it directly"
        return Finding(Status.WARN, 4, "model.final_norm", found, rule, "model.final_norm=null, or false")
    return Finding(Status.PASS, 4, "model.final_norm", found, "as the block needs it")


def _unmarked(specimen: Specimen) -> Iterator[Finding]:
    for name, module, _, role in roles(specimen.model):
        if role is None:
            rule = "every parameter states what it is, so that it is initialised and decayed rightly"
            fix = f"roles = {{{name.rpartition('.')[2]!r}: 'matrix'}} on {type(module).__name__}, or another role"
            yield Finding(Status.FAIL, 4, name, f"{type(module).__name__}, no role", rule, fix)
