"""The comparison as a W&B report: the same table and verdicts, and W&B's own plots of the project's runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any

from builder.errors import ArchlabError
from builder.markdown import plain, table

from .comparison import Comparison, Row
from .run import AXES
from .scaling import Law
from .table import count, spread, steps, words

LINES = 100
"""A report lists so many configurations and pairs; the page has all."""


def publish(comparison: Comparison, found: Law | str, project: str) -> str:
    """Makes the report in `entity/project` and returns its address; raises ArchlabError saying what is missing."""
    os.environ.setdefault("WANDB_SILENT", "true")
    try:
        import wandb

        reports = import_module("wandb_workspaces.reports.v2")
    except ImportError:
        raise ArchlabError(
            "report: found no package wandb-workspaces, which W&B's reports take; "
            "pip install wandb-workspaces, or archlab[reports]"
        ) from None
    entity, _, name = project.partition("/")
    try:
        wandb.Api(timeout=20)  # says at once what is wrong with the key or the service
        report = reports.Report(
            project=name,
            entity=entity,
            title=_title(comparison),
            width="fluid",
            blocks=list(_blocks(comparison, found, project, reports)),
        )
        report.save()
        return str(report.url)
    except Exception as error:  # of the service, the network, or a package that changed: none of it is the comparison's
        said = str(error).partition("\n")[0].strip()
        raise ArchlabError(
            f"report: found {project!r}, and W&B makes no report there ({type(error).__name__}: {said}); log in with "
            "`wandb login`, or look at the names; everything else was written"
        ) from None


def _title(comparison: Comparison) -> str:
    return f"{len(comparison.rows)} configurations by {comparison.by} {comparison.metric}"


def _blocks(comparison: Comparison, found: Law | str, project: str, reports: Any) -> Iterator[Any]:
    entity, _, name = project.partition("/")
    yield reports.MarkdownBlock(text="\n\n".join(_verdicts(comparison, found)))
    yield reports.H2(text="Configurations")
    yield reports.MarkdownBlock(text=configurations(comparison))
    if comparison.pairs:
        yield reports.H2(text="Pairs")
        yield reports.MarkdownBlock(text=_pairs(comparison))
    yield reports.H2(text="Curves")
    value = reports.SummaryMetric(comparison.metric)
    panels = [reports.LinePlot(title=f"along {axis}", x=axis, y=[comparison.metric]) for axis in AXES]
    panels += [
        reports.ScatterPlot(title=f"against {cost}", x=reports.SummaryMetric(f"ledger/{cost}"), y=value)
        for cost in ("params", "flops_per_token", "state_bytes_per_token")
    ]
    yield reports.PanelGrid(runsets=[reports.Runset(entity=entity, project=name)], panels=panels)


def _verdicts(comparison: Comparison, found: Law | str) -> Iterator[str]:
    if comparison.refusal:
        yield f"**Not ranked:** {comparison.refusal}"
    elif comparison.overruled:
        yield f"**Ranked by force,** though {comparison.overruled}"
    yield f"Matched within 1%: {'; '.join(m.what for m in comparison.matches if m.alike) or 'nothing'}"
    if isinstance(found, Law):
        yield f"Scaling law: {found}"


def configurations(comparison: Comparison) -> str:
    """The configurations as a table in Markdown, and what goes without saying in it."""
    rows = comparison.rows[:LINES]
    apart = words(comparison, rows)
    head = ["#", *apart, "seeds", f"{comparison.by} {comparison.metric}", "at step", "params"]
    head += ["training FLOPs", "tokens", "marks"]
    cells = [_row(row, told) for row, *told in zip(rows, *apart.values(), strict=True)]
    return _table(head, cells) + "".join(f"\n{plain(line)}\n" for line in comparison.columns.fixed)


def _row(row: Row, apart: list[str]) -> list[str]:
    costs = [row.cost("params"), row.reached("flops"), row.reached("tokens")]
    seeds = str(row.mean.n if row.mean else 0)
    return [str(row.rank or ""), *apart, seeds, spread(row), steps(row), *map(count, costs), "; ".join(row.marks)]


def _pairs(comparison: Comparison) -> str:
    labels = [row.configuration.label for row in comparison.rows]
    told = sorted(comparison.pairs, key=lambda pair: pair.adjusted)[:LINES]
    rows = [
        [
            labels[p.first],
            labels[p.second],
            f"{p.difference:+.4g}",
            f"{p.adjusted:.2g}",
            "differ" if p.differs else "level",
        ]
        for p in told
    ]
    return _table(["first", "second", "difference", "p (Holm)", ""], rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are no Markdown."""
    return table([plain(name) for name in head], [[plain(cell) for cell in row] for row in rows])
