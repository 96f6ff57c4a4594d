"""Compares runs: `python -m recipes.compare runs=DIR|GLOB|wandb:entity/project [where=[path=value]] [diff=A,B]`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from builder.cli import main
from builder.compare import CompareSpec, Comparison, compare, figures, page, pareto, report, scaling, speed
from builder.compare.along import Along, along
from builder.compare.changes import Difference, difference
from builder.compare.changes import render as render_changes
from builder.compare.changes import section as changes_section
from builder.compare.export import write as write_tables
from builder.compare.sources import gather, side
from builder.compare.table import first, render
from builder.errors import ArchlabError
from builder.load import read


def job(config: dict[str, Any]) -> None:
    """Reads the runs, prints the table, and writes files, figures and the page."""
    spec, console = read(CompareSpec, config), Console()
    runs = gather(spec)
    found = compare(runs, spec) if runs else None
    over = along(found, spec.along) if found and spec.along else None
    if found:
        console.print(render(found))
        console.out(first(found), highlight=False)
    changes = difference(*(side(name, runs) for name in spec.sides)) if spec.sides else None
    if changes:
        console.print(render_changes(changes))
    if found:
        law = scaling.law(found)
        if isinstance(law, scaling.Law):
            console.print(f"scaling law: {law}", highlight=False)
        out = Path(spec.out or Path("outputs", "compare", f"{datetime.now():%Y%m%d-%H%M%S-%f}"))
        try:
            _write(found, changes, law, spec, out, over)
        except OSError as error:
            raise ArchlabError(f"out: {out} can't be written ({error.strerror}); choose another folder") from None
        shown = out / "page.html" if spec.figures else out / "comparison.json"
        console.out(f"\nall of it is in {out}, for the eye in {shown}", highlight=False)
        _report(found, law, spec, console)


def _write(
    found: Comparison, changes: Difference | None, law: scaling.Law | str, spec: CompareSpec, out: Path,
    over: Along | None,
) -> None:  # fmt: skip
    more = {"scaling_law": law.to_dict() if isinstance(law, scaling.Law) else {"none": law}}
    more |= {} if over is None else {"along": over.to_dict()}
    write_tables(found, out, more | ({"changes": changes.to_dict()} if changes else {}))
    if spec.figures:
        planes = pareto.planes(found, speed.find(found.rows))
        figures.write(found, planes, law, out, over)
        sections = [figures.section(over, out / "along.png")] if over else []
        page.write(found, planes, law, out, sections + ([changes_section(changes)] if changes else []))


def _report(found: Comparison, law: scaling.Law | str, spec: CompareSpec, console: Console) -> None:
    """Makes the W&B report where it is asked for, and for runs that are in W&B where that can be done."""
    if spec.report is not None:
        console.out(f"W&B report {report.publish(found, law, spec.report)}", highlight=False)
    elif spec.projects:
        try:
            console.out(f"W&B report {report.publish(found, law, spec.projects[0])}", highlight=False)
        except ArchlabError as error:
            console.out(f"no W&B report: {error}", highlight=False)


if __name__ == "__main__":
    main(job, "compare")
