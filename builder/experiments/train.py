"""One run from spec to summary: data, checklist, folder, training, a sample; its status is always written."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console

from builder.checklist import check
from builder.checklist.render import render
from builder.cli import STOPPED
from builder.data import Corpus, cache_folder, prepare
from builder.errors import ArchlabError
from builder.generation.request import GenerationError
from builder.ledger import Ledger, ledger
from builder.spec import RunSpec

from . import wandb
from .folder import RunFolder
from .metrics import Axes, rewind
from .routing import render as routing
from .sample import request, sample
from .sheet import sheet


class Stopped(ArchlabError):
    """The run was interrupted, and can be resumed."""

    exit_code = STOPPED


class Refused(ArchlabError):
    """The checklist fails: nothing was built."""


def train(spec: RunSpec, console: Console) -> RunFolder:
    """Trains a new run; raises Refused, before anything is written, when the checklist fails."""
    from builder.training.fit import rehearse

    corpus, costs, report = _examine(spec, console)
    rehearse(spec)
    folder = RunFolder.create(spec)
    folder.summarise("running", reason=None, hash=spec.hash)
    corpus.tokenizer.save(folder.path)
    folder.write_json("checklist.json", report.to_dict())
    folder.write("sheet.md", sheet(spec, costs))
    _run(spec, folder, corpus, costs, console)
    return folder


def resume(path: str | Path, console: Console) -> RunFolder:
    """Goes on with a run from its last checkpoint; a run that was completed stays as it is."""
    from builder.training.checkpoint import belongs, read

    folder = RunFolder.open(path, key="resume")
    spec, last = folder.spec(), folder.checkpoint("last")
    contents = read(last)
    belongs(contents, spec)
    step = contents["global_step"]
    if step >= spec.steps:
        raise ArchlabError(f"resume: {folder.path} is completed: it stands at step {step} of {spec.steps}")
    corpus, costs, _ = _examine(spec, console)
    trained_on = folder.summary()["corpus"]
    if corpus.fingerprint != trained_on:
        raise ArchlabError(
            f"data: the run was trained on {trained_on[:16]}, and its text, split or tokenizer now make "
            f"{corpus.fingerprint[:16]}: the data changed since; restore it, or start a new run"
        )
    console.out(f"going on with {folder.path} after step {step} of {spec.steps}", highlight=False)
    _run(spec, folder, corpus, costs, console, checkpoint=last, step=step)
    return folder


def _examine(spec: RunSpec, console: Console) -> tuple[Corpus, Ledger, Any]:
    corpus = prepare(spec.data, spec.tokenizer, train_length=spec.model.train_length, cache=cache_folder())
    report = check(spec, corpus=corpus)
    console.print(render(report, title=f"Checklist of config {spec.hash}"))
    if not report.ok:
        paths = ", ".join(finding.path for finding in report.failures)
        raise Refused(f"the checklist fails at {paths}; nothing was built")
    try:
        request(corpus.tokenizer, spec.sample, spec.model.deploy_length)
    except GenerationError as error:
        raise Refused(f"sample.{error}") from None
    return corpus, ledger(spec.model), report


def _run(
    spec: RunSpec, folder: RunFolder, corpus: Corpus, costs: Ledger, console: Console,
    checkpoint: Path | None = None, step: int = 0,
) -> None:  # fmt: skip
    from builder.training.callbacks.interrupt import Interrupted
    from builder.training.fit import fit

    started = time.time()
    axes = Axes(spec.batch.sequences * spec.model.train_length, costs.flops_per_token)
    folder.summarise("running", reason=None, hash=spec.hash, corpus=corpus.fingerprint, ledger=costs.summary())
    rewind(folder.metrics, step)
    console.out(f"run folder {folder.path}\n", highlight=False)
    status = "failed"
    try:
        model, metrics = fit(spec, corpus, folder.path, axes, costs.summary(), console, checkpoint)
        if metrics["routing"]:
            console.print(routing(metrics["routing"], spec.model))
        folder.write(f"samples/step-{metrics['step']}.txt", sample(model, corpus.tokenizer, spec.sample, console))
        status = "completed"
        folder.summarise(status, seconds=round(time.time() - started, 1), reason=None, **metrics)
    except (Interrupted, KeyboardInterrupt) as stop:
        status = "interrupted"
        folder.summarise(status, reason=str(stop) or "stopped at once")
        saved = folder.checkpoint("last").is_file()
        after = f"go on with resume={folder.path}" if saved else f"no checkpoint was written yet; {folder.path} is left"
        raise Stopped(f"{stop or 'interrupted'}; {after}") from None
    except BaseException as error:
        folder.summarise(status, reason=f"{type(error).__name__}: {error}")
        raise
    finally:
        wandb.close(status)
    console.out(f"\nrun folder {folder.path}", highlight=False)
    console.out(f'next: python -m recipes.generate run={folder.path} prompt="..."', highlight=False)
