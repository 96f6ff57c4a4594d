"""Question 4: how are norm, MLP, bias, weight tying and the order of the residual stream defined?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from builder.components.init import roles
from builder.components.position import Position
from builder.errors import shown
from builder.finding import Finding, Status
from builder.layers import LayerSpec
from builder.sections import SampleSpec
from builder.spec import ModelSpec

from .probes import Specimen, learning, precision, tying, use
from .subject import Subject
from .where import where


def check(subject: Subject) -> Iterator[Finding]:
    """Equal layers drawn as one line, the final norm, the two ends, unused slots, tying, the role of each parameter."""
    model = subject.model
    for name, tower in model.towers.items():
        for alike in tower.kinds.values():
            yield from _drawn(name, tower, alike)
    yield from _shared(model)
    yield _final_norm(model)
    yield from _ends(model)
    for slot in model.slots:
        if slot not in subject.used:
            patterns = " and ".join(str(list(tower.pattern)) for tower in model.towers.values())
            rule = f"no layer uses this slot; the pattern is {patterns}"
            fix = f"name {slot} in model.pattern, or leave it out with ~model.{slot}"
            yield Finding(Status.FAIL, 4, f"model.{slot}", f"{model.slots[slot].name}, unused", rule, fix)
    yield from subject.stated_in(4)
    yield from model.init.component.judge(model.init, model)
    yield from _untrainable(subject)
    yield from _idle(subject.spec.sample)
    yield from subject.prove(4, "model", "every parameter has a role", _unmarked)
    yield from subject.prove(4, "model.tie_embeddings", "tied weights share storage", tying.prove)
    yield from subject.teach(4, "model", "what a step reaches and lowers", learning.prove)
    idle = tuple(slot for slot in model.slots if slot not in subject.used)
    yield from subject.teach(4, "model", "keys that nothing reads", lambda it: use.prove(it, subject.corpus, idle))
    yield from subject.teach(4, "trainer.precision", "what is computed in float32", precision.prove)


def _untrainable(subject: Subject) -> Iterator[Finding]:
    """Mixers whose kernel isn't there where the trainer trains; `auto` may mean any device."""
    device = {"cpu": "cpu", "gpu": "cuda", "cuda": "cuda"}.get(subject.spec.trainer.get("accelerator", "auto"))
    model = subject.model
    readers = {
        slot: config for tower in model.towers.values() for slot, config in (tower.mixers | tower.crossed).items()
    }
    told = {finding.path for finding in subject.stated_in(4) if finding.status is Status.FAIL}
    for slot, config in readers.items() if device else ():
        if f"model.{slot}.kernel" in told:  # of no use anywhere
            continue
        if (why := config.component.untrainable(config, model.site(0), device)) is not None:
            fix = f"model.{slot}.kernel=null, and the fastest that can is taken, or another trainer"
            yield Finding(Status.FAIL, 4, f"model.{slot}.kernel", f"trainer on {device}", why, fix)


def _idle(sample: SampleSpec) -> Iterator[Finding]:
    """Options of the sample that nothing reads beside others."""
    off = SampleSpec(prompt="")
    greedy, alone = sample.temperature == 0, sample.num_beams == 1
    keys = ("seed", *("top_k", "top_p", "min_p") * alone) if greedy else ()  # beams refuse the three
    idle = dict.fromkeys(keys, "nothing reads it at temperature 0")
    idle |= {"length_penalty": "nothing reads it without beams"} if alone else {}
    for key, rule in idle.items():
        if (found := getattr(sample, key)) != (unset := getattr(off, key)):
            path = f"sample.{key}"
            yield Finding(Status.WARN, 4, path, shown(found), rule, f"{path}={shown(unset)}")


def _shared(model: ModelSpec) -> Iterator[Finding]:
    """Which layers use one set of weights."""
    for entry in model.shared:
        places = {name: len(tower.kinds.get("+".join(entry.split()), ())) for name, tower in model.towers.items()}
        times = max(places.values())
        found = f"{entry}: one set of weights in {times} layer{'s' * (times > 1)}"
        if times > 1:
            yield Finding(Status.PASS, 4, "model.shared", found, "counted once; each layer has a state of its own")
        else:
            rule = "nothing is shared with a single layer"
            yield Finding(Status.WARN, 4, "model.shared", found, rule, "a larger model.n_layers, or model.shared=[]")


def _drawn(tower: str, model: ModelSpec, alike: Sequence[LayerSpec]) -> Iterator[Finding]:
    """A line for the layers of one kind, or for each way in which the block wires them."""
    slots = [part.slot for part in alike[0].parts]
    parts = [f"{part.slot} is {part.config.name}" for part in alike[0].parts]
    parts.append(f"norm is {(getattr(model.block, 'norm', None) or model.norm).name}")
    path = "model.pattern" if not tower else f"model.{tower}.pattern"
    wired: dict[str, list[LayerSpec]] = {}
    for layer in alike:
        steps: str = model.block.component.draw(model.block, model.site(layer.index), slots)
        wired.setdefault(steps, []).append(layer)
    for steps, layers in wired.items():
        yield Finding(Status.PASS, 4, path, f"{where(layers)}: {steps}", ", ".join(parts))
    if len(wired) > 1 and str(alike[0]) in model.shares:
        found, rule = f"{alike[0]}, wired in {len(wired)} ways", "layers that use one set of weights are wired alike"
        fix = "model.shared=[], or a model.block that is the same in every layer"
        yield Finding(Status.FAIL, 4, "model.shared", found, rule, fix)


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


def _ends(model: ModelSpec) -> Iterator[Finding]:
    """Embedding and head, drawn where they are more than a table and its product."""
    embedding, head, tied = model.embedding, model.head, model.tie_embeddings
    if embedding.scale is not None or embedding.norm is not None:
        adds = model.position.component.embed is not Position.embed
        rule = "what enters the layers" if embedding.norm is None else f"norm is {embedding.norm.name}"
        yield Finding(Status.PASS, 4, "model.embedding", embedding.draw(adds), rule)
    kind: Any = head.component
    if not kind.plain(head):
        rule = "W is the embedding's table; the rest acts on the logits alone" if tied else "W is the head's own"
        yield Finding(Status.PASS, 4, "model.head", kind.draw(head), rule)
    if model.vocab_size is not None:
        yield from (finding.under("model.head") for finding in kind.judge(head, model.vocab_size))


def _unmarked(specimen: Specimen) -> Iterator[Finding]:
    for name, module, _, role in roles(specimen.model):
        if role is None:
            rule = "every parameter states what it is, so that it is initialised and decayed rightly"
            fix = f"roles = {{{name.rpartition('.')[2]!r}: 'matrix'}} on {type(module).__name__}, or another role"
            yield Finding(Status.FAIL, 4, name, f"{type(module).__name__}, no role", rule, fix)
