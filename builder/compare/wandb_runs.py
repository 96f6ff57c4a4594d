"""Runs from a W&B project, as they would be read from their folders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from builder.errors import ArchlabError

from .run import COMPLETED, FAILED, INTERRUPTED, RUNNING, Run, series

TIMEOUT = 20
"""Seconds that the service may take to answer."""

AT_ONCE = 8
"""So many runs are read at once: most of the time is waiting."""

_STATES = {"finished": COMPLETED, "failed": FAILED, "crashed": FAILED, "killed": INTERRUPTED, "running": RUNNING}
_STEPS = ("step", "trainer/global_step", "_step")  # our own, Lightning's, W&B's count of log calls
_LEDGER = "ledger/"


def read(project: str, api: Any = None) -> list[Run]:
    """The runs of `entity/project`, the oldest first. Raises ArchlabError where W&B or the project can't be reached."""
    if project.count("/") != 1 or not all(project.split("/")):
        raise ArchlabError(f"runs: found 'wandb:{project}'; write wandb:entity/project")
    import wandb

    try:
        service = wandb.Api(timeout=TIMEOUT) if api is None else api
        found = list(service.runs(project, order="+created_at"))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            runs = list(pool.map(lambda run: _run(run, project), found))
    except (wandb.Error, ValueError, OSError) as error:  # no key, a wrong one, no such project, no network
        said = str(error).partition("\n")[0].strip()
        raise ArchlabError(
            f"runs: 'wandb:{project}' can't be read ({type(error).__name__}: {said}); log in with `wandb login`, or "
            "set WANDB_API_KEY and WANDB_BASE_URL, and look at the names; runs=DIR reads folders"
        ) from None
    if not runs:
        raise ArchlabError(f"runs: 'wandb:{project}' holds no run; look at the names, or read folders, runs=DIR")
    return runs


def _run(run: Any, project: str) -> Run:
    summary = dict(run.summary)
    state = str(summary.get("status") or _STATES.get(run.state, run.state))
    reason = summary.get("reason") or ("W&B heard no more of it" if run.state == "crashed" else "")
    if run.state == "crashed" and state == RUNNING:
        state = FAILED
    return Run(
        where=f"wandb:{project}/{run.id}",
        name=str(run.name or run.id),
        state=state,
        reason=str(reason),
        config={key: value for key, value in dict(run.config).items() if not key.startswith("_")},
        corpus=summary.get("corpus"),
        costs={
            name.removeprefix(_LEDGER): int(count)
            for name, count in _flat(summary)
            if name.startswith(_LEDGER) and isinstance(count, int | float)
        },
        series=series(_rows(run)),
    )


def _rows(run: Any) -> Iterator[dict[str, Any]]:
    for row in run.scan_history():
        step = next((row[name] for name in _STEPS if row.get(name) is not None), None)
        yield {name: value for name, value in row.items() if name not in _STEPS and value is not None} | {"step": step}


def _flat(node: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a summary by their names; W&B may nest what has a slash in it."""
    for key, value in node.items():
        here = f"{path}/{key}" if path else str(key)
        if isinstance(value, Mapping):
            yield from _flat(value, here)
        else:
            yield here, value
