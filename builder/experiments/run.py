"""A run that was trained, loaded again: its spec, model, tokenizer and report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builder.checklist import Report, check
from builder.data.templated import restored
from builder.data.tokenizer import Tokenizer
from builder.errors import ArchlabError
from builder.model.assemble import assemble
from builder.model.language_model import LanguageModel
from builder.spec import RunSpec

from .folder import RunFolder


@dataclass(frozen=True)
class Run:
    """What a run folder holds: `report` is its checklist, made anew; `labels` the names of its classes."""

    spec: RunSpec
    model: LanguageModel
    tokenizer: Tokenizer
    report: Report
    labels: tuple[str, ...] = ()


def load_run(path: str | Path, checkpoint: str = "best") -> Run:
    """The run in a folder, its model in eval mode with what a checkpoint deploys: `best`, `last` or `step-<number>`.

    Those weights are those of its average where the run keeps one (`ema`, or an optimizer without a schedule); `best`
    is of the step that callbacks.best.monitor was best at. Raises ArchlabError when there is no such run or checkpoint,
    or one is damaged or belongs to another config.
    """
    from builder.training.checkpoint import belongs, read  # imports lightning, which generation alone doesn't need

    folder = RunFolder.open(path)
    spec = folder.spec()
    contents = read(folder.checkpoint(checkpoint))
    belongs(contents, spec)
    tokenizer_class: Any = spec.tokenizer.component
    tokenizer = restored(tokenizer_class.load(spec.tokenizer, folder.path), folder.path)
    model = assemble(spec.model)
    mismatch = model.load_state_dict(contents["state_dict"] | contents.get("averaged", {}), strict=False)
    if mismatch.missing_keys or mismatch.unexpected_keys:
        raise ArchlabError(
            f"{folder.checkpoint(checkpoint)}: missing {mismatch.missing_keys or 'nothing'}, "
            f"unexpected {mismatch.unexpected_keys or 'nothing'}"
        )
    model.n_tokens = len(tokenizer)
    report = check(spec, tokenizer=tokenizer, trains=False)
    return Run(spec, model.eval(), tokenizer, report, tuple(folder.summary().get("labels", ())))
