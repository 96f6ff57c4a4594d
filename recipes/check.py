"""Prints checklist and ledger of a config: `python -m recipes.check [overrides] [format=json] [probes=false]`."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console

from builder import check, load
from builder.checklist.render import render
from builder.cli import main
from builder.data import cache_folder, prepare
from builder.errors import ArchlabError
from builder.ledger import ledger
from builder.load import choose


def job(config: dict[str, Any]) -> None:
    """Checks the config; exit code 1 when something fails."""
    as_json = choose(config.pop("format"), "format", ("table", "json")) == "json"
    probes = choose(config.pop("probes"), "probes", (True, False))
    spec = load(config)
    corpus = prepare(spec.data, spec.tokenizer, train_length=spec.model.train_length, cache=cache_folder())
    report = check(spec, probes=probes, corpus=corpus)
    costs = ledger(spec.model) if report.ok else None
    if as_json:
        print(
            json.dumps(report.to_dict() | {"ledger": costs.to_dict() if costs else None}, indent=2, ensure_ascii=False)
        )
    else:
        console = Console()
        console.print(render(report, title=f"Checklist of config {spec.hash}"))
        console.print(f"\n{costs}" if costs else "", highlight=False)
    if not report.ok:
        raise ArchlabError(f"the checklist fails at {', '.join(finding.path for finding in report.failures)}")


if __name__ == "__main__":
    main(job, "check")
