"""Brings a model of transformers in, `python -m recipes.convert hf=FOLDER out=RUNDIR`, or sends one out, `run=...`."""

from __future__ import annotations

from typing import Any, Literal, Self

import torch
from pydantic import model_validator
from rich.console import Console

from builder import ArchlabError, load_run
from builder.checklist.render import render
from builder.cli import main
from builder.component import refuse
from builder.interop import export_hf
from builder.interop.run_folder import import_run
from builder.load import read
from builder.section import Section


class ConvertSpec(Section):
    """Either `hf`, a folder that save_pretrained wrote, or `run`, a run folder; `out` is the new folder.

    A run may state which `checkpoint` (best), as which `family` (the first that fits), and in which `dtype` (float32).
    """

    hf: str | None = None
    run: str | None = None
    out: str
    family: str | None = None
    checkpoint: str | None = None
    dtype: Literal["float32", "bfloat16", "float16"] | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.hf is None) == (self.run is None):
            refuse("hf", self.hf, "one source: a folder of transformers, or a run", "hf=FOLDER, or run=RUNDIR")
        for key in ("family", "checkpoint", "dtype") if self.hf is not None else ():
            if (value := getattr(self, key)) is not None:
                refuse(key, value, "only a run that is sent out has a choice here", f"hf and out without {key}")
        return self


def job(config: dict[str, Any]) -> None:
    """Converts, and prints what was made; exit code 1 when an imported model fails the checklist."""
    spec, console = read(ConvertSpec, config), Console()
    if spec.hf is not None:
        _bring(spec.hf, spec.out, console)
    else:
        _send(spec, console)


def _bring(source: str, target: str, console: Console) -> None:
    made = import_run(source, target)
    console.print(render(made.report, title=f"Checklist of config {made.spec.hash}"))
    if made.note:
        console.out(f"note: {made.note}", highlight=False)
    console.out(f"\nrun folder {made.folder.path}", highlight=False)
    if not made.report.ok:
        paths = ", ".join(finding.path for finding in made.report.failures)
        raise ArchlabError(f"the checklist fails at {paths}; the run folder can be loaded, and generates nothing")
    console.out(f'next: python -m recipes.generate run={made.folder.path} prompt="..."', highlight=False)


def _send(spec: ConvertSpec, console: Console) -> None:
    run = load_run(str(spec.run), spec.checkpoint or "best")
    dtype = getattr(torch, spec.dtype or "float32")
    whole = {"tokenizer": run.tokenizer, "labels": run.labels}
    made = export_hf(run.model, spec.out, family=spec.family, dtype=dtype, **whole)
    for sentence in made.left_out:
        console.out(f"note: {made.model_type} can't say this, which only training would notice: {sentence}")
    console.out(f"{spec.out} holds a {made.model_type} model; transformers.{made.architecture} loads it")


if __name__ == "__main__":
    main(job, "convert")
