"""Does a training step fit where it is to be computed, and what would make it fit?"""

from __future__ import annotations

from collections.abc import Iterator

from builder.finding import Finding, Status
from builder.memory import PARTS, SPARE, Endless, Forecast, Forecaster, told

from .subject import Subject


def check(subject: Subject) -> Finding:
    """The memory of one rank at the worst moment of a step, against what its device has."""
    try:
        return judge(Forecaster(subject.spec))
    except Endless as error:
        return Finding(Status.UNKNOWN, 1, "batch", "no memory forecast", str(error).partition(": ")[2])
    except Exception as error:  # a component that asks for numbers while there are none, or of another house
        said = str(error).splitlines()[0] if str(error) else "no message"
        rule = f"the step can't be played through without computing it: {type(error).__name__}: {said}"
        return Finding(Status.UNKNOWN, 1, "batch", "no memory forecast", rule)


def judge(forecaster: Forecaster) -> Finding:
    """The verdict on what is forecast of a run, and what would make it fit."""
    spec = forecaster.spec
    expected = forecaster.at(forecaster.chosen)
    found = f"{told(expected.peak.total)} of memory a rank"
    parts = ", ".join(f"{part} {told(size)}" for part in PARTS if (size := getattr(expected.peak, part)))
    rule = f"{parts}; most in {expected.when}, {expected.micro_batch} rows at once"
    room = expected.device.memory
    if room is None:
        found, rule = f"{found}, as a CPU would need", f"{rule}; what there is isn't known: {expected.device.why}"
        elsewhere = spec.trainer.get("accelerator", "auto") not in ("auto", "cpu")
        fix = "trainer=auto for this machine, or check it on one that has it" if elsewhere else ""
        return Finding(Status.UNKNOWN, 1, "batch", found, rule, fix)
    rule += f"; {expected.device.name} has {told(room)}"
    if expected.roomy:
        return Finding(Status.PASS, 1, "batch", found, rule)
    fix = ", or ".join(_remedies(forecaster, expected)) or "a smaller model, or a device with more memory"
    if expected.fits:
        rest = f"less than {1 - SPARE:.0%} is left for fragments and for the process itself"
        return Finding(Status.WARN, 1, "batch", found, f"{rule}: {rest}", fix)
    if spec.compile and expected.lasting.total <= room:
        return Finding(Status.WARN, 1, "batch", found, f"{rule}: compiled it keeps less, and may fit", fix)
    return Finding(Status.FAIL, 1, "batch", found, f"{rule}: it doesn't fit", fix)


def _remedies(forecaster: Forecaster, expected: Forecast) -> Iterator[str]:
    """What to write so that it fits with room to spare, as far as that can be forecast."""
    spec, room = forecaster.spec, expected.device.memory or 0
    if expected.lasting.total > SPARE * room:  # no batch is small enough
        if expected.device.kind == "cpu":  # whose memory all ranks of a machine share
            return
        ranks = -(-expected.lasting.total * max(1, forecaster.division.shards) // int(SPARE * room))
        yield f"trainer=fsdp on {max(2, ranks)} ranks or more" + (
            " batch.micro_batch=1" if expected.micro_batch > 1 else ""
        )
        return
    if _fits(forecaster):
        yield f"batch.micro_batch={forecaster.largest()}"
    if spec.activation_checkpointing is not True:
        other = forecaster.recomputing()
        if _fits(other):
            size = other.largest()
            yield "activation_checkpointing=true" + (f" batch.micro_batch={size}" if size < other.rows else "")
    if forecaster.division.shards == 1 and expected.device.kind != "cpu":
        yield "trainer=fsdp on more ranks"


def _fits(forecaster: Forecaster) -> bool:
    try:
        return forecaster.at(forecaster.largest()).roomy
    except Endless:  # what can't be forecast isn't promised
        return False
