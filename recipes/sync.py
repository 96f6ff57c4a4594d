"""Sends runs that were logged offline to W&B: `python -m recipes.sync [runs=DIR|GLOB]`."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from builder.cli import main
from builder.errors import ArchlabError
from builder.experiments.tracking.upload import Fate, find, upload
from builder.load import read
from builder.section import Section


class SyncSpec(Section):
    """`runs`: a folder with runs in or below it, or a pattern of such."""

    runs: str


def job(config: dict[str, Any]) -> None:
    """Sends what W&B lacks, says what became of each run; exit code 1 when one was not sent."""
    console = Console()
    fates = upload(find(read(SyncSpec, config).runs))
    for fate in fates:
        console.out(f"{fate.folder}: {_told(fate)}", highlight=False)
    missing = [fate for fate in fates if not fate.there]
    sent = sum(fate.there and not fate.before for fate in fates)
    before = sum(fate.before for fate in fates)
    console.out(f"{sent} sent, {before} there before, {len(missing)} not sent", highlight=False)
    if missing:
        raise ArchlabError(f"{len(missing)} of {len(fates)} runs are not in W&B; see above, and send them again")


def _told(fate: Fate) -> str:
    if fate.fault:
        return f"not sent: {fate.fault}"
    if fate.before:
        return "there before"
    return "sent" if fate.parts == 1 else f"sent, in {fate.parts} parts of one run"


if __name__ == "__main__":
    main(job, "sync")
