"""Evaluates a trained run on its validation rows: `python -m recipes.evaluate run=RUNDIR [limit=N] [num_beams=4]`."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, PositiveInt
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from builder import ArchlabError, load_run
from builder.checklist.render import render as checklist
from builder.cli import main
from builder.data import cache_folder, prepare
from builder.evaluation import Evaluation, evaluate
from builder.evaluation.render import render
from builder.experiments.folder import RunFolder
from builder.generation import MOST_BEAMS
from builder.load import read
from builder.section import Section


class EvaluateSpec(Section):
    """The folder of the run, which of its checkpoints, how many rows at most, and how answers are searched for."""

    run: str
    checkpoint: str = "best"
    limit: PositiveInt | None = None
    num_beams: Annotated[int, Field(ge=1, le=MOST_BEAMS)] = 1
    format: Literal["table", "json"] = "table"


def job(config: dict[str, Any]) -> None:
    """Prints what was found, and keeps it in the run folder as evaluation.json."""
    spec = read(EvaluateSpec, config)
    run, console = load_run(spec.run, spec.checkpoint), Console()
    if not run.report.ok:
        Console(stderr=True).print(checklist(run.report, title=f"Checklist of config {run.spec.hash}"))
        raise ArchlabError(f"{spec.run}: its checklist fails, see above; nothing was evaluated")
    corpus = prepare(run.spec, cache=cache_folder())
    RunFolder(spec.run).refuse_other_data(corpus.fingerprint)
    model = run.model.to("cuda" if torch.cuda.is_available() else "cpu")
    columns = (TextColumn("{task.description:<10}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def tell(what: str, done: int, total: int) -> None:
            tasks[what] = tasks[what] if what in tasks else bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done)

        found: Evaluation = evaluate(run.spec, model, corpus, limit=spec.limit, num_beams=spec.num_beams, tell=tell)
    folder = RunFolder(spec.run)
    best = folder.summary().get("best") or {}
    chosen = ", ".join(f"{name} {value:g}" for name, value in best.items()) if spec.checkpoint == "best" else ""
    told = {"checkpoint": spec.checkpoint, "chosen_by": chosen or None, "limit": spec.limit}
    told |= {"num_beams": spec.num_beams, **found.to_dict()}
    folder.write_json("evaluation.json", told)
    if spec.format == "json":
        print(json.dumps(told, indent=2, ensure_ascii=False))
    else:
        console.print(render(found, f"Run {spec.run}, {spec.checkpoint}{f' ({chosen})' * bool(chosen)}"))


if __name__ == "__main__":
    main(job, "evaluate")
