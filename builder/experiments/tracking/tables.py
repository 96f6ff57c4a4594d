"""The tables and the files of a run in W&B: its checklist, its samples, its frozen config and its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from builder.spec import RunSpec

from ..folder import RunFolder

CHECKLIST = ("status", "section", "path", "found", "rule", "fix")
SAMPLES = ("step", "prompt", "text")


def checklist(folder: Path) -> dict[str, Any]:
    """What checklist.json of a run folder says, {} where there is none."""
    return RunFolder(folder).read_json("checklist.json") or {}


def findings(report: Mapping[str, Any]) -> list[list[str]]:
    """A row for each finding of a report in plain Python, its section as `<number>. <name>`."""
    rows = []
    for finding in report.get("findings", ()):
        told = finding | {"section": f"{finding['section']}. {finding['section_name']}"}
        rows.append([told[column] for column in CHECKLIST])
    return rows


def deployed(report: Mapping[str, Any]) -> tuple[list[Any], list[list[Any]]]:
    """The deploy contract of a report in plain Python: its columns, and a row for each kind of layer."""
    rows = report.get("deploy", ())
    return list(rows[0]) if rows else [], [list(row.values()) for row in rows]


def verdict(report: Mapping[str, Any]) -> dict[str, Any]:
    """The checklist in the summary: checklist/ok, and checklist/<status> with how many findings have it."""
    counts = {f"checklist/{status.lower()}": count for status, count in report.get("counts", {}).items()}
    return {"checklist/ok": report["ok"], **counts} if report else {}


def samples(folder: Path, spec: RunSpec) -> list[list[Any]]:
    """A row for each file in samples/, by its step: the prompt, and the whole text."""
    files = [path for path in folder.glob("samples/step-*.txt") if path.stem[5:].isdecimal()]
    rows = [[int(path.stem[5:]), spec.sample.prompt, path.read_text(encoding="utf-8")] for path in files]
    return sorted(rows, key=lambda row: row[0])


def config_files(folder: Path) -> dict[str, Path]:
    """The frozen config and what was said of it before the first step."""
    return _there(folder / name for name in ("config.yaml", "checklist.json", "sheet.md"))


def checkpoints(folder: Path) -> dict[str, Path]:
    """The checkpoints to deploy and to go on from."""
    return _there(folder / "checkpoints" / name for name in ("best.ckpt", "last.ckpt"))


FILES = {"config": config_files, "checkpoints": checkpoints}
"""What may be asked for as an artifact, and which files of a run folder it holds."""

TYPES = {"config": "config", "checkpoints": "model"}
"""The types of the artifacts, as W&B shows them."""


def artifact(kind: str, run_id: str, folder: Path) -> Any:
    """A wandb.Artifact of that kind, `<kind>-<id of the run>`; None where the run folder has nothing for it.

    The files are read where they lie, when they are sent: nothing is copied.
    """
    import wandb

    files = FILES[kind](folder)
    made = wandb.Artifact(f"{kind}-{run_id}", type=TYPES[kind])
    for name, path in files.items():
        # a link would lead elsewhere once the run goes on; a sharded checkpoint is a folder
        add: Any = made.add_dir if path.is_dir() else made.add_file
        add(str(path.resolve()), name=name, policy="immutable")
    return made if files else None


def _there(paths: Any) -> dict[str, Path]:
    return {path.name: path for path in paths if path.exists()}
