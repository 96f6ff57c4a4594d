"""Writes text with a trained run: `python -m recipes.generate run=RUNDIR prompt="..." [temperature=0] [top_p=0.9]`."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from builder import ArchlabError, load_run
from builder.checklist.render import render
from builder.cli import main
from builder.experiments.sample import sample
from builder.load import read
from builder.sections import SampleSpec


class GenerateSpec(SampleSpec):
    """The knobs of generation, the folder of the run, and which of its checkpoints: `best` or `last`."""

    run: str
    checkpoint: str = "best"


def job(config: dict[str, Any]) -> None:
    """Loads the run, prints its checklist to stderr, and the text to stdout as it comes."""
    spec = read(GenerateSpec, config)
    run = load_run(spec.run, spec.checkpoint)
    Console(stderr=True).print(render(run.report, title=f"Checklist of config {run.spec.hash}"))
    if not run.report.ok:
        raise ArchlabError(f"{spec.run}: its checklist fails, see above; nothing was generated")
    sample(run.model, run.tokenizer, spec, Console())


if __name__ == "__main__":
    main(job, "generate")
