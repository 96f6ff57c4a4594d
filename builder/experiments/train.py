"""One run from spec to summary: data, checklist, folder, training, a sample; its status is always written."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from builder.checklist import check
from builder.checklist.render import render
from builder.cli import STOPPED
from builder.data import Corpus, cache_folder, prepare
from builder.data.templated import keep
from builder.disk import room_for
from builder.errors import ArchlabError
from builder.ledger import Ledger, ledger
from builder.spec import RunSpec

from . import slurm, together, wandb
from .claim import Claim
from .folder import RunFolder
from .kept import choose, clear_drafts
from .metrics import Axes, damaged_of, rewind
from .routing import render as routing
from .sheet import sheet
from .step_size import tokens_of_step
from .verbs import answer


class Stopped(ArchlabError):
    """The run was interrupted, and can be resumed."""

    exit_code = STOPPED


class Refused(ArchlabError):
    """The checklist fails: nothing was built."""


@dataclass(frozen=True)
class Ready:
    """A run that may start or go on: `checkpoint` None is its beginning, `execution` what else is computed how."""

    spec: RunSpec
    folder: RunFolder
    corpus: Corpus
    costs: Ledger
    checkpoint: Path | None = None
    step: int = 0
    execution: Mapping[str, Any] = field(default_factory=dict)

    @property
    def told(self) -> dict[str, Any]:
        """What its other processes must know: the rest is in the run folder."""
        checkpoint = None if self.checkpoint is None else str(self.checkpoint)
        return {"path": str(self.folder.path), "checkpoint": checkpoint, "step": self.step} | {
            "execution": dict(self.execution)
        }


def train(spec: RunSpec, console: Console) -> RunFolder:
    """Trains a new run; raises Refused, before anything is written, when the checklist fails.

    Where SLURM has started the job again, the run that it had begun goes on instead.
    """
    return _together(lambda claim: _new(spec, console, claim), console)


def resume(path: str | Path, console: Console, execution: Mapping[str, Any] | None = None) -> RunFolder:
    """Goes on with a run from its newest checkpoint that is whole; a run that was completed stays as it is.

    A damaged checkpoint is named, and the one before it used. A run that had none yet starts again from its first step.
    `execution` holds, by their paths, other values of the keys in spec.EXECUTION.
    """
    return _together(lambda claim: _old(path, console, execution or {}, claim), console)


def take_part(path: str, checkpoint: str | None, step: int, execution: Mapping[str, Any]) -> None:
    """What each process of a run does that rank 0 of it, or another process, has made ready."""
    folder = RunFolder(path)
    with Claim() as claim:
        claim.share(folder.config)
        spec = folder.spec(execution)
        corpus = _corpus(spec)
        where = None if checkpoint is None else Path(checkpoint)
        ready = Ready(spec, folder, corpus, ledger(spec.model), where, step, execution)
        _follow(ready) if together.rank() else _run(ready, Console())


def _together(prepare: Callable[[Claim], Ready | RunFolder], console: Console) -> RunFolder:
    """Runs what is made ready in as many processes as it asks for; a folder in its place holds a run that is done."""
    made: list[Ready | RunFolder] = []

    def decide() -> dict[str, Any] | str:
        ready = prepare(claim)
        made.append(_with_micro_batch(ready, console) if isinstance(ready, Ready) else ready)
        if isinstance(ready, Ready):
            claim.share(ready.folder.config)
        return made[0].told if isinstance(made[0], Ready) else str(made[0].path)

    with Claim() as claim:
        told = together.agree(decide) if together.outside() else decide()
        if isinstance(told, str):
            return RunFolder(told)
        if not made:
            take_part(**told)
        elif isinstance(ready := made[0], Ready):
            count = 1 if together.outside() else together.processes(ready.spec.trainer)
            _run(ready, console) if count == 1 else _spread(ready, count)
        return RunFolder(told["path"])


def _with_micro_batch(ready: Ready, console: Console) -> Ready:
    """The run with a number in the place of batch.micro_batch=auto: one for all its ranks, and for this machine."""
    if ready.spec.batch.micro_batch != "auto":
        return ready
    from builder.memory import largest_micro_batch

    rows = largest_micro_batch(ready.spec)
    execution = {**ready.execution, "batch.micro_batch": rows}
    console.out(f"batch.micro_batch=auto: {rows} sequences at once fit the memory", highlight=False)
    return replace(ready, spec=ready.folder.spec(execution), execution=execution)


def _new(spec: RunSpec, console: Console, claim: Claim) -> Ready | RunFolder:
    if (begun := slurm.begun(spec)) is not None:
        return begun if begun.summary().get("status") == "completed" else _old(begun.path, console, {}, claim)
    corpus, costs, report = _examine(spec, console)
    folder = RunFolder.create(spec)
    claim.take(folder.config, "output.name")
    _begin(spec, folder, corpus, costs, report)
    return Ready(spec, folder, corpus, costs)


def _old(path: str | Path, console: Console, execution: Mapping[str, Any], claim: Claim) -> Ready:
    folder = RunFolder.open(path, key="resume")
    claim.take(folder.config, "resume")
    spec, said = folder.spec(execution), folder.summary()
    if said.get("status") == "completed":
        early = f", {said['reason']}" if said.get("reason") else ""
        raise ArchlabError(
            f"resume: {folder.path} is completed: it stands at step {said.get('step', '?')} of {spec.steps}{early}"
        )
    checkpoint, step = _stand(folder, spec, console)
    corpus, costs, report = _examine(spec, console)
    folder.refuse_other_data(corpus.fingerprint)
    clear_drafts(folder)
    if checkpoint is None:
        _begin(spec, folder, corpus, costs, report)
    console.out(f"going on with {folder.path} after step {step} of {spec.steps}", highlight=False)
    return Ready(spec, folder, corpus, costs, checkpoint, step, execution)


def _stand(folder: RunFolder, spec: RunSpec, console: Console) -> tuple[Path | None, int]:
    """The checkpoint to go on from, and its step; (None, 0) for a run that was stopped before it had written one."""
    from builder.training.checkpoint import belongs

    chosen = choose(folder, lambda text: console.out(text, highlight=False))
    if chosen is None:
        if folder.summary().get("status", "running") not in ("running", "failed", "interrupted"):
            there = ", ".join(sorted(path.stem for path in folder.checkpoints.glob("*.ckpt"))) or "none"
            raise ArchlabError(f"{folder.checkpoint('last')}: no such checkpoint; there are: {there}")
        return None, 0
    path, contents = chosen
    belongs(contents, spec)
    return path, contents["global_step"]


def _begin(spec: RunSpec, folder: RunFolder, corpus: Corpus, costs: Ledger, report: Any) -> None:
    """Writes what a run has before its first step."""
    with room_for(folder.path):
        folder.summarise("running", reason=None, hash=spec.hash, **slurm.mark())
        corpus.tokenizer.save(folder.path)
        folder.write_json("checklist.json", report.to_dict())
        folder.write("sheet.md", sheet(spec, costs, report))


def _corpus(spec: RunSpec) -> Corpus:
    return prepare(spec, cache=cache_folder())


def _examine(spec: RunSpec, console: Console) -> tuple[Corpus, Ledger, Any]:
    """Data, costs and checklist of a run that may train on this machine: what it refuses is told before a report."""
    from builder.training.fit import rehearse

    corpus = _corpus(spec)
    report = check(spec, corpus=corpus)
    if report.ok:
        rehearse(spec)
    console.print(render(report, title=f"Checklist of config {spec.hash}"))
    if not report.ok:
        paths = ", ".join(finding.path for finding in report.failures)
        raise Refused(f"the checklist fails at {paths}; nothing was built")
    return corpus, ledger(spec.model), report


def _spread(ready: Ready, count: int) -> None:
    """Has `count` processes train the run, and says what became of it."""
    folder = ready.folder
    folder.summarise("running", reason=None)
    try:
        together.start(ready.told, count)
    except together.RankDied as error:
        if error.asked:
            _end(folder, "interrupted", str(error))
            raise Stopped(f"{error}; go on with resume={folder.path}") from None
        _end(folder, "failed", str(error))
        raise together.RankDied(f"{error}; mend what ended it, and go on with resume={folder.path}") from None
    if (said := folder.summary())["status"] == "interrupted":
        raise Stopped(f"{said['reason']}; go on with resume={folder.path}")


def _follow(ready: Ready) -> None:
    """What the processes but the first do: they train, and say and write nothing by themselves."""
    from builder.training.callbacks.interrupt import Interrupted
    from builder.training.fit import fit

    spec = ready.spec
    axes = Axes(tokens_of_step(spec, ready.corpus), ready.costs.flops_per_token)
    try:
        fit(spec, ready.corpus, ready.folder.path, axes, {}, Console(quiet=True), ready.checkpoint)
    except (Interrupted, KeyboardInterrupt) as stop:
        raise Stopped(str(stop)) from None


def _run(ready: Ready, console: Console) -> None:
    from builder.training.callbacks.interrupt import Interrupted
    from builder.training.fit import fit

    spec, folder, corpus, costs = ready.spec, ready.folder, ready.corpus, ready.costs
    started, status = time.time(), "failed"
    axes = Axes(tokens_of_step(spec, corpus), costs.flops_per_token)
    known = {"hash": spec.hash, "corpus": corpus.fingerprint, "ledger": costs.summary()}
    known |= {"labels": list(corpus.labels)} if corpus.labels else {}
    try:
        with room_for(folder.path):
            folder.summarise("running", reason=None, **known, **slurm.mark())
            keep(corpus.tokenizer, folder.path)
            if damaged := rewind(folder.metrics, ready.step):
                console.out(_lines_of(folder, damaged), highlight=False)
            console.out(f"run folder {folder.path}\n", highlight=False)
            model, metrics = fit(spec, corpus, folder.path, axes, costs.summary(), console, ready.checkpoint)
            if metrics["routing"]:
                console.print(routing(metrics["routing"], spec.model))
            said = answer(model, corpus.tokenizer, spec.sample, console, corpus.labels)
            folder.write(f"samples/step-{metrics['step']}.txt", said)
            status = "completed"
            folder.summarise(status, seconds=round(time.time() - started, 1), **metrics)
    except (Interrupted, KeyboardInterrupt) as stop:
        status = "interrupted"
        _end(folder, status, str(stop) or "stopped at once")
        raise Stopped(f"{stop or 'interrupted'}; {_next(folder, stop)}") from None
    except BaseException as error:
        status = "failed"
        _end(folder, status, f"{type(error).__name__}: {error}")
        raise
    finally:
        wandb.close(status)
    console.out(f"\nrun folder {folder.path}", highlight=False)
    console.out(f'next: python -m recipes.generate run={folder.path} prompt="..."', highlight=False)


def _lines_of(folder: RunFolder, damaged: list[int]) -> str:
    """What is said of lines that no longer tell what was logged."""
    named = ", ".join(map(str, damaged[:5])) + ", ..." * (len(damaged) > 5)
    return (
        f"{folder.metrics}: damaged at {len(damaged)} of its lines ({named}), which are put into "
        f"{damaged_of(folder.metrics).name}; all others are kept"
    )


def _end(folder: RunFolder, status: str, reason: str) -> None:
    with suppress(OSError, ArchlabError):  # on a full disk, what ended the run is still what is to be told
        folder.summarise(status, reason=reason)


def _next(folder: RunFolder, stop: BaseException) -> str:
    """What is to be done about a run that was stopped; a preempted one is put back into SLURM's queue."""
    from builder.training.callbacks.interrupt import Preempted

    if isinstance(stop, Preempted) and slurm.job() is not None:
        wandb.close("interrupted")  # before SLURM ends the process
        return f"{slurm.requeue()}; by hand: resume={folder.path}"
    if not folder.checkpoint("last").exists():
        return f"no checkpoint was written yet; resume={folder.path} starts again from the first step"
    return f"go on with resume={folder.path}"
