"""Measures speed and memory of a config: `python -m recipes.bench [overrides] [peers=true] [bench.rounds=7]`."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from builder import ConfigError, check, load
from builder.bench import BenchSpec, count, measure, read_sections, workload
from builder.bench.machine import facts
from builder.bench.record import record, write
from builder.bench.render import render
from builder.checklist.render import render as checklist
from builder.cli import main
from builder.errors import ArchlabError
from builder.spec import RunSpec


def job(config: dict[str, Any]) -> None:
    """Checks the config, measures it, prints a table and writes every sample; no text is read."""
    spec, (bench, peers) = _read(config)
    report = check(spec)
    console = Console()
    if not report.ok:
        console.print(checklist(report, title=f"Checklist of config {spec.hash}"))
        raise ArchlabError(f"the checklist fails at {', '.join(finding.path for finding in report.failures)}")
    work = workload(spec, bench)
    columns = (TextColumn("{task.description:<16}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("measuring", total=count(work, peers))
        result = measure(spec, work, peers, lambda what: bar.update(task, description=what, advance=1))
    machine = facts(work)
    console.print(render(result, work, machine, title=f"Speed of config {spec.hash}"))
    path = write(record(spec, work, machine, result), spec.output.root)
    console.out(f"every sample is in {path}", highlight=False)


def _read(config: dict[str, Any]) -> tuple[RunSpec, tuple[BenchSpec, bool]]:
    """The run and the sections beside it; raises ConfigError with the problems of both."""
    own = {key: config.pop(key) for key in ("bench", "peers") if key in config}
    problems, read = [], []
    for reader, content in ((load, config), (read_sections, own)):
        try:
            read.append(reader(content))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    spec, sections = read
    return spec, sections


if __name__ == "__main__":
    main(job, "bench")
