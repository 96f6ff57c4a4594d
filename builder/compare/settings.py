"""What is asked of a comparison: its knobs, strictly typed."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from builder.component import refuse
from builder.section import Section

Aspect = Literal["params", "active_params", "flops", "state_bytes_per_token", "tokens", "data", "validation", "targets"]
"""What may be alike in all configurations."""

WANDB = "wandb:"
"""What stands before a W&B project."""

Texts = str | Annotated[tuple[str, ...], Field(strict=False)] | None


class CompareSpec(Section):
    """The knobs of a comparison.

    runs    a folder, read with all below it, a glob of folders, or wandb:entity/project; several with commas between
    where   the runs that have these values, [path=value, ...]; path=a|b takes either
    rank    the metric that is compared; by its best value, or its last
    goal    min or max of it; None: max for accuracies, speeds and the like, else min
    along   a key of the config in which they differ: the metric is drawn over it, a line for each setting of all else
    match   what must be alike within 1% in all that is ranked
    force   ranks what isn't alike, and what didn't end
    diff    two of the runs, or two run folders, A,B: what was changed, and what each change costs
    out     the folder for tables, figures and the page; None: outputs/compare/<time>
    figures false: only tables
    report  entity/project for a W&B report; None: that of the runs, where they are in W&B
    """

    runs: Texts = None
    where: Texts = None
    rank: str = "val/loss"
    by: Literal["best", "last"] = "best"
    goal: Literal["min", "max"] | None = None
    along: str | None = None
    match: Annotated[tuple[Aspect, ...], Field(strict=False)] = (
        *("params", "flops", "tokens", "data"),
        *("validation", "targets"),
    )
    force: bool = False
    diff: Texts = None
    out: str | None = None
    figures: bool = True
    report: str | None = None

    @property
    def sources(self) -> list[str]:
        """The folders, globs and projects."""
        return listed(self.runs)

    @property
    def projects(self) -> list[str]:
        """Those of the sources that are W&B projects, entity/project."""
        return [source.removeprefix(WANDB) for source in self.sources if source.startswith(WANDB)]

    @property
    def filters(self) -> list[str]:
        """The conditions on the config, path=value."""
        return listed(self.where)

    @property
    def sides(self) -> list[str]:
        """The two runs of `diff`, or none."""
        return listed(self.diff)

    @model_validator(mode="after")
    def _something_is_asked(self) -> Self:
        if not self.sources and not self.sides:
            example = "runs=outputs/main, runs=wandb:entity/project, or diff=RUNDIR,RUNDIR"
            refuse("runs", self.runs, "the runs to compare: a folder, a glob, or a W&B project", example)
        if len(self.sides) not in (0, 2):
            refuse("diff", self.diff, "two runs with a comma between them", "diff=outputs/main/a,outputs/main/b")
        if unclear := [word for word in self.filters if not word.partition("=")[1] or word.startswith("=")]:
            refuse("where", unclear[0], "path=value, of the config of a run", "where=[model.n_layers=4,seed=0|1]")
        if self.report is not None and self.report.count("/") != 1:
            refuse("report", self.report, "a W&B project, entity/project", "report=me/archlab")
        return self


def listed(text: str | tuple[str, ...] | None) -> list[str]:
    """The entries of `a,b` or `[a,b]`; a comma within brackets parts nothing."""
    if text is None or not isinstance(text, str):
        return list(text or ())
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    entries, depth = [""], 0
    for letter in text:
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth == 0:
            entries.append("")
        else:
            entries[-1] += letter
    return [entry.strip() for entry in entries if entry.strip()]
