"""Prints checklist and ledger: `python -m recipes.check [overrides] [format=json] [coordinates=[64,128,256]]`."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from builder import check, load
from builder.checklist.render import render
from builder.cli import main
from builder.coordinates import Coordinates, count, measure, read_widths, refuse, table, write
from builder.data import Corpus, cache_folder, prepare
from builder.errors import ArchlabError
from builder.ledger import ledger
from builder.load import choose
from builder.spec import RunSpec


def job(config: dict[str, Any]) -> None:
    """Checks the config, and with `coordinates` copies of its model at several widths; exit code 1 when one fails."""
    as_json = choose(config.pop("format"), "format", ("table", "json")) == "json"
    probes = choose(config.pop("probes"), "probes", (True, False))
    widths = read_widths(config.pop("coordinates"))
    spec, console = load(config), Console()
    if widths:
        refuse(spec, widths)
    corpus = prepare(spec, cache=cache_folder())
    report = check(spec, probes=probes, corpus=corpus)
    costs = ledger(spec.model) if report.ok else None
    if not as_json:
        console.print(render(report, title=f"Checklist of config {spec.hash}"))
        console.print(f"\n{costs}" if costs else "", highlight=False)
    found = _compare(spec, corpus, widths) if widths and report.ok else None
    picture = write(found, f"Coordinates of config {spec.hash}", spec.output.root) if found else None
    if as_json:
        more = {"coordinates": found.to_dict() | {"picture": str(picture)}} if found else {}
        content = report.to_dict() | {"ledger": costs.to_dict() if costs else None} | more
        print(json.dumps(content, indent=2, ensure_ascii=False))
    elif found:
        console.print(table(found, title=f"Coordinates of config {spec.hash}"))
        console.out(f"the picture is {picture}", highlight=False)
    if not report.ok:
        raise ArchlabError(f"the checklist fails at {', '.join(finding.path for finding in report.failures)}")
    if found and found.failures:
        kinds = dict.fromkeys(verdict.quantity.what for verdict in found.failures)
        raise ArchlabError(
            f"the coordinate check fails at {', '.join(kinds)}: a rate that fits one width fits no other"
        )


def _compare(spec: RunSpec, corpus: Corpus, widths: tuple[int, ...]) -> Coordinates:
    columns = (TextColumn("{task.description:<14}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("d_model", total=count(widths))
        return measure(spec, corpus, widths, tell=lambda what: bar.update(task, description=what, advance=1))


if __name__ == "__main__":
    main(job, "check")
