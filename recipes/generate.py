"""Writes text with a trained run: `python -m recipes.generate run=RUNDIR prompt="..." [draft=RUNDIR]`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import PositiveInt, model_validator
from rich.console import Console

from builder import ArchlabError, load_run
from builder.checklist.render import render
from builder.cli import main
from builder.component import refuse
from builder.data.templated import with_chat
from builder.data.tokenizer import Tokenizer
from builder.experiments.attention_maps import write
from builder.experiments.draft import proposals
from builder.experiments.run import Run
from builder.experiments.verbs import answer, refuse_unread
from builder.load import read
from builder.sections import SampleSpec


class GenerateSpec(SampleSpec):
    """The knobs of generation, the folder of the run, and which of its checkpoints: `best` or `last`.

    draft           the folder of a smaller run with the same tokenizer, which proposes tokens; None: nothing does
    draft_tokens    how many it proposes at a time; None: 4
    compile         whether torch compiles the step of a token, which takes many seconds, and then less for each token
    raw             whether the prompt is asked as it stands, of a run that has a chat template
    attention       whether what each head looks at is drawn too, into the run folder
    """

    run: str
    checkpoint: str = "best"
    draft: str | None = None
    draft_tokens: PositiveInt | None = None
    compile: bool = False
    raw: bool = False
    attention: bool = False

    @model_validator(mode="after")
    def _a_draft_is_there_to_propose(self) -> Self:
        if self.draft is None and self.draft_tokens is not None:
            refuse("draft_tokens", self.draft_tokens, "nothing reads it while draft is null", "draft=RUNDIR")
        if self.draft is not None and self.compile:
            rule = "what is compiled reads a token a step, and behind a draft the model reads several"
            refuse("compile", True, rule, "compile=false, or draft=null")
        return self


def job(config: dict[str, Any]) -> None:
    """Loads the run, prints its checklist to stderr, and the text to stdout as it comes."""
    spec = read(GenerateSpec, config)
    run = load_run(spec.run, spec.checkpoint)
    refuse_unread(run.model.spec, run.tokenizer, compile=spec.compile, draft=spec.draft, raw=spec.raw)
    Console(stderr=True).print(render(run.report, title=f"Checklist of config {run.spec.hash}"))
    if not run.report.ok:
        raise ArchlabError(f"{spec.run}: its checklist fails, see above; nothing was generated")
    how: dict[str, Any] = {"compile": True} if spec.compile else {}
    if spec.draft is not None:
        how["proposals"] = proposals(run, spec.run, spec.draft, spec.draft_tokens)
    tokenizer = with_chat(run.tokenizer, None) if spec.raw else run.tokenizer
    answer(run.model, tokenizer, spec, Console(), run.labels, **how)
    if spec.attention:
        _draw(run, tokenizer, spec)


def _draw(run: Run, tokenizer: Tokenizer, spec: GenerateSpec) -> None:
    """Draws the maps, and says where they are and what they don't say."""
    folder = Path(spec.run, "attention_maps", "generated")
    pictures = write(run.model, tokenizer, spec.prompt, folder, f", run {Path(spec.run).name}", spec.before)
    told = "where each head reads; a weight is no reason: others can give the same output"
    Console(stderr=True).print(f"{len(pictures)} maps in {folder}: {told}", highlight=False)


if __name__ == "__main__":
    main(job, "generate")
