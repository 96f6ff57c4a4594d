"""Writes text with a trained run: `python -m recipes.generate run=RUNDIR prompt="..." [draft=RUNDIR]`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from builder import ArchlabError, load_run
from builder.checklist.render import render
from builder.cli import main
from builder.components.attention import Attention
from builder.data.templated import with_chat
from builder.data.tokenizer import Tokenizer
from builder.errors import ConfigError, Problem, shown
from builder.experiments.attention_maps import write
from builder.experiments.draft import proposals
from builder.experiments.run import Run
from builder.experiments.verbs import answer, refuse_unread, verb_of
from builder.generation.command import GenerateSpec
from builder.load import read


def job(config: dict[str, Any]) -> None:
    """Loads the run, prints its checklist to stderr, and the text to stdout as it comes."""
    spec = read(GenerateSpec, config)
    run = load_run(spec.run, spec.checkpoint)
    refuse_unread(run.model.spec, run.tokenizer, compile=spec.compile, draft=spec.draft, raw=spec.raw)
    _refuse_unread(run, spec)
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


def _refuse_unread(run: Run, spec: GenerateSpec) -> None:
    """Raises ConfigError for what is asked of a run whose model has no use for it."""
    idle = [] if verb_of(run.model.spec) == "go_on" else spec.sampling
    faults = [(name, "this model doesn't write, a token at a time", f"leave {name} out") for name in idle]
    if spec.attention and not any(isinstance(module, Attention) for module in run.model.modules()):
        faults.append(("attention", "no layer of this model is an attention", "attention=false"))
    if faults:
        raise ConfigError(
            Problem(n, shown(getattr(spec, n)), f"nothing reads it: {why}", fix) for n, why, fix in faults
        )


def _draw(run: Run, tokenizer: Tokenizer, spec: GenerateSpec) -> None:
    """Draws the maps, and says where they are and what they don't say."""
    folder = Path(spec.run, "attention_maps", "generated")
    pictures = write(run.model, tokenizer, spec.prompt, folder, f", run {Path(spec.run).name}", spec.before)
    told = "where each head reads; a weight is no reason: others can give the same output"
    Console(stderr=True).print(f"{len(pictures)} maps in {folder}: {told}", highlight=False)


if __name__ == "__main__":
    main(job, "generate")
