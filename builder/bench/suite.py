"""All measurements of one config, with or without its peer: memory first, then training, then generation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from builder.ledger import ledger
from builder.plain import refuse_others
from builder.spec import RunSpec
from builder.training.peaks import peak_of

from .contender import Contender, Ours
from .fairness import refuse_dropout, refuse_unequal
from .machine import refuse_too_large
from .memory import expected, peak
from .peer import Peer, export
from .ratio import Ratio, compare
from .settings import Workload
from .turns import Measure, Samples, in_turns
from .work import PARTS, Decode, Generate, Prefill, TrainingStep

Tell = Callable[[str], object]
"""Hears, after each measurement, of what it was one."""


@dataclass(frozen=True)
class Timing:
    """One kind of work: seconds a step of each contender, and the tokens that a step reads or writes."""

    what: str
    rows: int
    tokens: int
    samples: Samples
    parts: dict[str, float] = field(default_factory=dict)
    """Which shares of our time each part of the work takes, where it has parts."""

    @property
    def ratio(self) -> Ratio | None:
        """Ours / theirs; None without a peer."""
        seconds = list(self.samples.seconds.values())
        return compare(*seconds) if len(seconds) == 2 else None


@dataclass(frozen=True)
class Result:
    """All that was measured, by contender, ours first: parameters, peak bytes of training, and times; the forecast of
    our peak; and our MFU in training, None where the device's peak isn't known (training/peaks)."""

    parameters: dict[str, int]
    memory: dict[str, int]
    forecast: int
    mfu: float | None
    timings: tuple[Timing, ...]
    peer: str | None
    """What the peer is, and of which version."""


def count(work: Workload, peers: bool) -> int:
    """How many measurements `measure` will make."""
    kinds = 1 + 3 * len(work.batch_sizes)
    return (1 + peers) * (1 + kinds * (work.rounds + work.warmup))


def measure(spec: RunSpec, work: Workload, peers: bool, tell: Tell) -> Result:
    """Measures what the config describes; raises ArchlabError when it doesn't fit the machine, or has no equal peer."""
    refuse_others(spec, "recipes.bench")
    costs = ledger(spec.model)
    each = 4 * 4 * costs.params  # weights, gradients and two moments, in float32
    refuse_too_large((1 + peers) * each, work.device)
    with TemporaryDirectory() as place:
        folder = Path(place, "peer")
        ours = Ours(spec, work.place)
        contenders: list[Contender] = [ours]
        peer = None
        if peers:
            refuse_dropout(spec)
            export(ours.module, folder)
            theirs = Peer(folder, work.place)
            refuse_unequal(ours, theirs, spec)
            contenders.append(theirs)
            peer = theirs.described
        memory = {}
        for contender, source in zip(contenders, (None, folder), strict=False):
            memory[contender.name] = peak(spec.to_dict(), work, source)
            tell("memory")
        forecast = expected(spec, work)
        timings = tuple(_timings(spec, work, contenders, tell))
    mfu = _mfu(3 * costs.flops_per_token, timings[0], work)
    sizes = {contender.name: contender.parameters for contender in contenders}
    return Result(sizes, memory, forecast, mfu, timings, peer)


def _mfu(flops_per_token: int, training: Timing, work: Workload) -> float | None:
    """FLOPs of the ledger, forward and backward, over those that the device's maker states."""
    best = peak_of(work.place, work.precision)
    seconds = next(iter(training.samples.seconds.values()))
    return None if best is None else flops_per_token * training.tokens / median(seconds) / best


def _timings(spec: RunSpec, work: Workload, contenders: list[Contender], tell: Tell) -> Iterator[Timing]:
    def timing(what: str, rows: int, tokens: int, measures: list[Measure]) -> Timing:
        named = {contender.name: measure for contender, measure in zip(contenders, measures, strict=True)}
        samples = in_turns(named, rounds=work.rounds, warmup=work.warmup, seconds=work.seconds, each=lambda: tell(what))
        return Timing(what, rows, tokens, samples)

    if spec.compile:
        for contender in contenders:
            contender.compile()
    steps = [TrainingStep(contender, spec, work) for contender in contenders]
    training = timing("training", work.sequences, work.sequences * work.length, list(steps))
    yield replace(training, parts=_shares(steps[0], work.rounds))
    del steps  # and with them gradients' owners, the moments
    for contender in contenders:
        contender.module.zero_grad(set_to_none=True)
        contender.module.eval().to(work.torch_dtype)
    for rows in work.batch_sizes:
        prefills: list[Measure] = [Prefill(contender, spec, work, rows) for contender in contenders]
        yield timing("prefill", rows, rows * work.prompt_length, prefills)
    for rows in work.batch_sizes:
        decodes: list[Measure] = [Decode(contender, spec, work, rows) for contender in contenders]
        yield timing("decode", rows, rows, decodes)
    for rows in work.batch_sizes:
        whole: list[Measure] = [Generate(contender, spec, work, rows) for contender in contenders]
        yield timing("generate", rows, rows * work.new_tokens, whole)


def _shares(step: TrainingStep, rounds: int) -> dict[str, float]:
    """The part of a step's time that each of its parts takes, by their medians."""
    rows = [step.parts() for _ in range(rounds)]
    middles = {part: median(row[part] for row in rows) for part in PARTS}
    return {part: middle / sum(middles.values()) for part, middle in middles.items()}
