"""Prints checklist and ledger of a config, of a run (`run=DIR`) or a folder of transformers (`hf=DIR`), or a schema."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from builder import check, load
from builder.checklist.form import FORMS
from builder.cli import main
from builder.coordinates import Coordinates, count, measure, read_widths, refuse, table, write
from builder.data import Corpus, cache_folder, prepare
from builder.errors import ArchlabError
from builder.interop.checked import FOLDERS, check_folder
from builder.ledger import ledger
from builder.load import choose
from builder.schema import json_schema
from builder.spec import RunSpec


def job(config: dict[str, Any]) -> None:
    """Checks, and with `coordinates` compares copies of the model at several widths; exit code 1 when one fails."""
    if schema := choose(config.pop("schema"), "schema", (False, True, "partial")):
        print(json.dumps(json_schema(partial=schema == "partial"), indent=1, ensure_ascii=False))
        return
    form = choose(config.pop("format"), "format", (*FORMS, "json"))
    probes = choose(config.pop("probes"), "probes", (True, False))
    widths, corpus, console = read_widths(config.pop("coordinates")), None, Console()
    if folders := {key: path for key in FOLDERS if (path := config.pop(key)) is not None}:
        if widths:
            raise ArchlabError("coordinates: they train copies of a config, and a folder has weights: leave one out")
        spec, report = check_folder(folders, config.get("overrides"), probes)
    else:
        spec = load(config)
        if widths:
            refuse(spec, widths)
        corpus = prepare(spec, cache=cache_folder())
        report = check(spec, probes=probes, corpus=corpus)
    costs = ledger(spec.model) if report.ok else None
    if form != "json":
        title = " ".join(["Checklist of", *(f"{key}={path}," for key, path in folders.items()), f"config {spec.hash}"])
        FORMS[form](report, costs, title, console)
    found = _compare(spec, corpus, widths) if widths and corpus and report.ok else None
    picture = write(found, f"Coordinates of config {spec.hash}", spec.output.root) if found else None
    if form == "json":
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


def command() -> None:
    """The command line: beside a folder, all else that is typed changes that folder's config."""
    main(job, "check", whole=tuple(FOLDERS))


if __name__ == "__main__":
    command()
